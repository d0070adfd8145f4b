// What a launch of product_streamed_sm90.cuh is told, and the entry of each
// kind of codes.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_STREAMED_SHAPE_H_
#define INLAY_KERNELS_GEMM_QUANTISED_STREAMED_SHAPE_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// That multiply: with the two that copy, 128 registers a lane are left.
inline constexpr int kMostStreamedWarps = 14;
// Of a job: a warp has two, and two warps share K.
inline constexpr int kMostStreamedTiles = kMostStreamedWarps;
inline constexpr int kMostStreamedPlaces = 64;
inline constexpr int kStreamedHead = 2048;  // barriers
// A unit of x, 8 rows of it, in shared memory.
inline constexpr int kStreamedXBytes = 8 * kQuantColumns * 2;

struct StreamedShape {
  int64_t n;
  int64_t tile_bytes;
  int m;
  int slots;   // tiles of 16 rows of w; where gated of one half
  int up;      // where gated: tiles from a gate to its up; otherwise 0
  int groups;  // of K, each of place_units units
  int place_units;
  int unit_bytes;
  int log_cluster;  // of blocks that share K
  int jobs;
  int rounds;     // jobs of a cluster
  int job_slots;  // the most
  int shares;     // of a block's K; a warp has two tiles and one of these
  int warps;      // that multiply
  int places;     // of the ring, each a group of a job's tiles and of x
  int x_bytes;    // of a place, which x comes first in
  int place_bytes;
  uint32_t ring;  // offsets in shared memory
  uint32_t partials;
  bool narrow;          // y is of the type of x; otherwise f32
  bool rounds_weights;  // with 8 and 16 rows of x too
  Activation function;  // where gated
  size_t shared_bytes;
};

// x as [units of 64][rows][64], packed weights as [halves][slots][halves of
// units][bytes], one half or, where gated, two: a copy brings a group of all
// rows of x, or of as many slots as a job has, or of one fewer. Zeros beyond K.
struct StreamedMaps {
  CUtensorMap x;
  CUtensorMap w[2];
};

#define INLAY_STREAMED_LAUNCH(name)                                     \
  absl::Status name(const GemmParams& params, const StreamedMaps& maps, \
                    const QuantForm& form, int x_tiles,                 \
                    const StreamedShape& shape, CudaStream& stream)
INLAY_STREAMED_LAUNCH(
    LaunchStreamedLinear4);  // product_streamed_linear4_sm90.cu
INLAY_STREAMED_LAUNCH(
    LaunchStreamedLinear6);  // product_streamed_linear6_sm90.cu
INLAY_STREAMED_LAUNCH(LaunchStreamedTable4);  // product_streamed_table4_sm90.cu
INLAY_STREAMED_LAUNCH(LaunchStreamedInt8);    // product_streamed_int8_sm90.cu
INLAY_STREAMED_LAUNCH(LaunchStreamedE4M3);    // product_streamed_e4m3_sm90.cu
#undef INLAY_STREAMED_LAUNCH

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_STREAMED_SHAPE_H_
