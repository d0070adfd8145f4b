// How router_sm90.cu cuts its work and its shared memory.
#ifndef INLAY_KERNELS_MOE_ROUTER_SHAPE_H_
#define INLAY_KERNELS_MOE_ROUTER_SHAPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/moe/router.h"

namespace inlay {

inline constexpr int kRouterWarps = 16;
inline constexpr int kRouterThreads = 32 * kRouterWarps;
// Of a cluster: each has a slice of the columns.
inline constexpr int kRouterBlocks = 8;
// Of K at a time: an mma's.
inline constexpr int kRouterStep = 16;
inline constexpr int kRouterTile = 16;  // experts of an mma
inline constexpr int kMostRouterExperts = 256;
inline constexpr int kMostRouterTopK = 16;
// A lane has two vectors of a row's slice.
inline constexpr int64_t kMostRouterWidth = kRouterBlocks * 512;
inline constexpr size_t kMostRouterShared = 227 << 10;

// Offsets in a block's shared memory are in bytes.
struct RouterShape {
  int num_experts;
  int width;
  int columns;      // of a slice; the last may be shorter, or empty
  int tiles;        // of experts
  int row_tiles;    // of 8 tokens: 1, 2, 4 or 8
  int w_row_bytes;  // from a row to the next: out of each other's banks
  int x_row_bytes;
  int logits_row;   // floats
  uint32_t parts;   // [kRouterWarps / 2][tiles of tokens][32] float4; then
                    // what tokens choose from
  uint32_t logits;  // [tokens][logits_row] f32: of the block's slice
  uint32_t x;       // [tokens][x_row_bytes]
  uint32_t w;       // [num_experts][w_row_bytes]
  size_t shared_bytes;
};

// What comes first.
struct RouterHead {
  static constexpr uint32_t kBarrier = 0;
  // [kRouterBlocks][kMostRouterTokens] f32: of squares
  static constexpr uint32_t kSums = 128;
  static constexpr uint32_t kMasks =
      kSums + kRouterBlocks * kMostRouterTokens * 4;
  static constexpr uint32_t kStarts = kMasks + kMostRouterExperts * 8;
  static constexpr uint32_t kListSums = kStarts + kMostRouterExperts * 4;
  static constexpr uint32_t kChosen = kListSums + 32 * 4;
  static constexpr uint32_t kBytes =
      kChosen + kMostRouterTokens * kMostRouterTopK * 4;
};

// For so many tokens at most.
inline RouterShape RouterShapeOf(const MoeRouterDesc& desc,
                                 int64_t most_tokens) {
  RouterShape shape = {};
  shape.row_tiles = 1;
  while (shape.row_tiles * 8 < most_tokens) shape.row_tiles *= 2;
  const auto tokens = static_cast<uint32_t>(shape.row_tiles) * 8;
  const auto steps = static_cast<int>(desc.width) / kRouterStep;
  shape.num_experts = desc.routing.num_experts;
  shape.width = static_cast<int>(desc.width);
  shape.columns = (steps + kRouterBlocks - 1) / kRouterBlocks * kRouterStep;
  shape.tiles = (shape.num_experts + kRouterTile - 1) / kRouterTile;
  // A lane reads four columns: 4 rows of 16 bits, or 2 of 32, fill all banks.
  const auto row = [&](int element) {
    const int quad = 16 * element;
    return (shape.columns * element - quad + 127) / 128 * 128 + quad;
  };
  shape.w_row_bytes = row(desc.weight == DType::kF32 ? 4 : 2);
  shape.x_row_bytes = row(2);
  shape.logits_row = shape.tiles * kRouterTile + 4;
  shape.parts = RouterHead::kBytes;
  const auto experts = static_cast<uint32_t>(shape.num_experts);
  const uint32_t parts = kRouterWarps / 2 * (tokens / 8) * 512;
  // What a block chooses from: RouterChoice.
  const uint32_t scores =
      tokens / kRouterBlocks *
      (8 * experts + 4 * static_cast<uint32_t>(shape.logits_row) +
       4 * kMostRouterTopK);
  shape.logits = shape.parts + std::max(parts, scores);
  shape.x = shape.logits + tokens * static_cast<uint32_t>(shape.logits_row) * 4;
  shape.x = (shape.x + 127) / 128 * 128;
  shape.w = shape.x + tokens * static_cast<uint32_t>(shape.x_row_bytes);
  // Rows of the last tile that are not there are read all the same.
  shape.shared_bytes =
      shape.w + static_cast<size_t>(shape.tiles * kRouterTile) *
                    static_cast<size_t>(shape.w_row_bytes);
  return shape;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTER_SHAPE_H_
