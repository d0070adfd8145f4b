// What a launch of expert_streamed_sm90.cuh is told, and the entry of each kind
// of codes.
#ifndef INLAY_KERNELS_MOE_EXPERT_STREAMED_SHAPE_H_
#define INLAY_KERNELS_MOE_EXPERT_STREAMED_SHAPE_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/activation/activation.h"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/moe/expert_linear.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// That multiply; with the two that copy, 128 registers a lane are left. (22
// with 80 registers are as fast.)
inline constexpr int kExpertStreamWarps = 14;
inline constexpr int kExpertStreamThreads = 32 * (kExpertStreamWarps + 2);
inline constexpr int kMostExpertPlaces = 32;
// Of a piece: slots that share a reading of their expert.
inline constexpr int kMostPieceRows = 16;
// Boxes of one pair and of two. (Larger ones, and one for all of a round, are
// up to 15 % slower.)
inline constexpr int kExpertBoxes = 2;

struct ExpertStreamedShape {
  const int32_t* offsets;
  const int32_t* slots;
  const int64_t* table;  // ExpertMatrices
  // The last kernel was one of these: offsets, slots and table are complete
  // when this one begins, and weights are asked for before its end is awaited.
  bool listed;
  int64_t expert_bytes;
  int64_t tile_bytes;
  int num_experts;
  int top_k;
  bool row_a_slot;
  int n;            // outputs of an expert: rows of w, or gated half as many
  int k;            // columns
  int pairs;        // of an expert's tiles
  int pair_tile;    // from a pair's first tile to the next one's
  int other_tile;   // from a pair's first tile to its second
  int expert_step;  // from an expert's first pair to the next one's
  int units;        // of K
  int groups;       // of units, one for each share
  int unit_bytes;
  int unit_rows;    // that a unit is to the copy engine
  int shares;       // warps that share a pair's K
  int round_pairs;  // the most: what a place has room for
  int places;       // of the ring, each a group of a round's pairs and of x
  int x_row_bytes;  // in a place: rows lie out of each other's banks
  int x_bytes;      // of a piece; x of two comes first in a place
  int place_bytes;
  uint32_t parts;  // offsets in shared memory: of sums, where K is shared
  uint32_t ring;
  bool gated;           // pairs are gates and their ups
  bool narrow;          // y is of the type of x; otherwise f32
  Activation function;  // where gated
  float limit;
  size_t shared_bytes;
};

// Packed weights as [pairs][2][rows of units][bytes]: a copy of the i-th brings
// a group of 2^i pairs. Zeros beyond K.
struct ExpertStreamedMaps {
  CUtensorMap w[kExpertBoxes];
};

// `row_tiles`: of 8 rows of x, that share one reading of their expert: 1 or 2.
#define INLAY_EXPERT_STREAMED_LAUNCH(name)                                 \
  absl::Status name(const ExpertLinearParams& params,                      \
                    const ExpertStreamedMaps& maps, const QuantForm& form, \
                    int row_tiles, const ExpertStreamedShape& shape,       \
                    CudaStream& stream)
INLAY_EXPERT_STREAMED_LAUNCH(
    LaunchExpertStreamedLinear4);  // expert_streamed_linear4_sm90.cu
INLAY_EXPERT_STREAMED_LAUNCH(
    LaunchExpertStreamedLinear6);  // expert_streamed_linear6_sm90.cu
INLAY_EXPERT_STREAMED_LAUNCH(
    LaunchExpertStreamedTable4);  // expert_streamed_table4_sm90.cu
INLAY_EXPERT_STREAMED_LAUNCH(
    LaunchExpertStreamedInt8);  // expert_streamed_int8_sm90.cu
INLAY_EXPERT_STREAMED_LAUNCH(
    LaunchExpertStreamedE4M3);  // expert_streamed_e4m3_sm90.cu
#undef INLAY_EXPERT_STREAMED_LAUNCH

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_STREAMED_SHAPE_H_
