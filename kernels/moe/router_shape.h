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
// Of a cluster: each has a slice of the columns. The first where a slice of w
// lies in shared memory whole, the second where it goes through rings: twice
// the memory, and twice as many that copy.
inline constexpr int kRouterBlocks = 8;
inline constexpr int kRouterStreamBlocks = 16;
// So many multiprocessors are in eight parts of a GPU at most, of which one
// then has 16: room for a cluster of as many blocks. Slices of a GPU have less.
inline constexpr int kRouterStreamSms = 114;
// Of K at a time: an mma's.
inline constexpr int kRouterStep = 16;
inline constexpr int kRouterTile = 16;  // experts of an mma
inline constexpr int kMostRouterTopK = 16;
inline constexpr int kMostRouterGroups = 32;
inline constexpr size_t kMostRouterShared = 227 << 10;
// Of a ring, 16 rows of 128 bytes: a place.
inline constexpr int kRouterPieceRow = 128;
inline constexpr int kRouterPiece = kRouterTile * kRouterPieceRow;
inline constexpr int kMostRouterPlaces = 16;

// By the number of blocks.
constexpr int MostRouterExperts(int blocks) { return 32 * blocks; }
// A lane has two vectors of a row's slice.
constexpr int64_t MostRouterWidth(int blocks) { return blocks * 512; }

// Offsets in a block's shared memory are in bytes.
struct RouterShape {
  int num_experts;
  int width;
  int blocks;
  int columns;      // of a slice; the last may be shorter, or empty
  int tiles;        // of experts
  int row_tiles;    // of 8 tokens: 1, 2, 4 or 8
  int w_row_bytes;  // from a row to the next: out of each other's banks
  int x_row_bytes;
  int logits_row;  // floats
  int places;      // of a warp's ring
  // [kRouterWarps / 2][tiles of tokens][32] float4, where weights do not
  // stream; then what tokens choose from
  uint32_t parts;
  uint32_t logits;  // [tokens][logits_row] f32: of the block's slice
  uint32_t x;       // [tokens][x_row_bytes]
  // [num_experts][w_row_bytes]; or rings, [kRouterWarps][places][kRouterPiece]
  uint32_t w;
  size_t shared_bytes;
};

// What comes first.
template <int kBlocks>
struct RouterHead {
  static constexpr int kExperts = MostRouterExperts(kBlocks);
  static constexpr uint32_t kBarrier = 0;
  // [kBlocks][kMostRouterTokens] f32: of squares
  static constexpr uint32_t kSums = 128;
  static constexpr uint32_t kMasks = kSums + kBlocks * kMostRouterTokens * 4;
  static constexpr uint32_t kStarts = kMasks + kExperts * 8;
  static constexpr uint32_t kListSums = kStarts + kExperts * 4;
  static constexpr uint32_t kChosen = kListSums + 32 * 4;
  // Of places of rings, [kRouterWarps][kMostRouterPlaces].
  static constexpr uint32_t kFull =
      kChosen + kMostRouterTokens * kMostRouterTopK * 4;
  static constexpr uint32_t kBytes =
      kFull + (kBlocks == kRouterStreamBlocks
                   ? 8 * kRouterWarps * kMostRouterPlaces
                   : 0);
};

// For so many tokens at most, by so many blocks.
inline RouterShape CutRouter(const MoeRouterDesc& desc, int64_t most_tokens,
                             int blocks) {
  RouterShape shape = {};
  const bool streams = blocks == kRouterStreamBlocks;
  shape.row_tiles = 1;
  while (shape.row_tiles * 8 < most_tokens) shape.row_tiles *= 2;
  const auto tokens = static_cast<uint32_t>(shape.row_tiles) * 8;
  const auto steps = static_cast<int>(desc.width) / kRouterStep;
  const int element = desc.weight == DType::kF32 ? 4 : 2;
  shape.num_experts = desc.routing.num_experts;
  shape.width = static_cast<int>(desc.width);
  shape.blocks = blocks;
  shape.columns = (steps + blocks - 1) / blocks * kRouterStep;
  shape.tiles = (shape.num_experts + kRouterTile - 1) / kRouterTile;
  // A lane reads four columns: 4 rows of 16 bits, or 2 of 32, fill all banks.
  const auto row = [&](int bytes) {
    const int quad = 16 * bytes;
    return (shape.columns * bytes - quad + 127) / 128 * 128 + quad;
  };
  shape.w_row_bytes = row(element);
  shape.x_row_bytes = row(2);
  shape.logits_row = shape.tiles * kRouterTile + 4;
  shape.parts = streams ? RouterHead<kRouterStreamBlocks>::kBytes
                        : RouterHead<kRouterBlocks>::kBytes;
  const auto experts = static_cast<uint32_t>(shape.num_experts);
  const uint32_t parts = streams ? 0 : kRouterWarps / 2 * (tokens / 8) * 512;
  // What a block chooses from: RouterChoice.
  const auto shares = static_cast<uint32_t>(blocks);
  const uint32_t scores =
      (tokens + shares - 1) / shares *
      (8 * experts + 4 * static_cast<uint32_t>(shape.logits_row) +
       4 * kMostRouterTopK);
  shape.logits = shape.parts + std::max(parts, scores);
  shape.x = shape.logits + tokens * static_cast<uint32_t>(shape.logits_row) * 4;
  shape.x = (shape.x + 127) / 128 * 128;
  shape.w = shape.x + tokens * static_cast<uint32_t>(shape.x_row_bytes);
  if (!streams) {
    // Rows of the last tile that are not there are read all the same.
    shape.shared_bytes =
        shape.w + static_cast<size_t>(shape.tiles * kRouterTile) *
                      static_cast<size_t>(shape.w_row_bytes);
    return shape;
  }
  // As many places as there are pieces, or room: RouterRing.
  const int own = (shape.columns / kRouterStep + 1) / 2 * kRouterStep * element;
  const int pieces = (own + kRouterPieceRow - 1) / kRouterPieceRow;
  const int rounds = (shape.tiles + kRouterWarps / 2 - 1) / (kRouterWarps / 2);
  constexpr int64_t kPlaceBytes = int64_t{kRouterWarps} * kRouterPiece;
  const int64_t room =
      (static_cast<int64_t>(kMostRouterShared) - shape.w) / kPlaceBytes;
  shape.places = static_cast<int>(
      std::min<int64_t>({room, pieces * rounds, kMostRouterPlaces}));
  shape.shared_bytes =
      shape.w + static_cast<size_t>(std::max(shape.places, 2) * kPlaceBytes);
  return shape;
}

// Where the slices do not fit.
inline bool RouterStreams(const MoeRouterDesc& desc) {
  return desc.width > MostRouterWidth(kRouterBlocks) ||
         desc.routing.num_experts > MostRouterExperts(kRouterBlocks) ||
         CutRouter(desc, 1, kRouterBlocks).shared_bytes > kMostRouterShared;
}

inline RouterShape RouterShapeOf(const MoeRouterDesc& desc,
                                 int64_t most_tokens) {
  return CutRouter(desc, most_tokens,
                   RouterStreams(desc) ? kRouterStreamBlocks : kRouterBlocks);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTER_SHAPE_H_
