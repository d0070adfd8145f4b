// What a launch of product_wide_sm90.cuh or product_codes_sm90.cu is told, and
// the entry of each kind of codes.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_WIDE_SHAPE_H_
#define INLAY_KERNELS_GEMM_QUANTISED_WIDE_SHAPE_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kWideTiles = 16;      // of a block, a warp each
inline constexpr int kWideFewTiles = 8;    // with 256 rows of x
inline constexpr int kWideCodesTiles = 8;  // where x is codes
// Rows of x that a block finishes at a time where it goes on to other jobs.
inline constexpr int kWideChunk = 32;
INLAY_HOST_DEVICE constexpr int WideStride(int tiles) {  // floats, of sums
  return tiles * kQuantRows + 4;
}
inline constexpr int kWideHead = 1024;  // barriers
inline constexpr int kMostWideStages = 16;
inline constexpr int kMostWideSplits = 8;

// A block that multiplies kTilesOf tiles of w, a warp each.
template <int kTilesOf>
struct WideBlock {
  static constexpr int kRows = kTilesOf * kQuantRows;
  static constexpr int kStride = WideStride(kTilesOf);
  static constexpr int kThreads = 32 * (kTilesOf + 4);
};

struct WideShape {
  int64_t n;
  int64_t k;
  int64_t tile_bytes;
  int m;         // rows of x
  int blocks_m;  // of plan.columns rows
  int box;       // rows of x that a copy brings
  int tiles;     // of 16 rows of w
  int jobs;      // a block's tiles of w and plan.columns rows of x
  int units;     // of K
  int unit_bytes;
  int block_tiles;
  int columns;
  int splits;
  int clusters;
  int whole;  // the first jobs, which blocks take alone; clusters share others
  int w_stages;
  int x_stages;
  bool codes;    // x is codes of 8 bits
  bool narrow;   // y has 16 bits; otherwise f32
  bool vectors;  // y and residual lie for four elements at a time
  // Groups of rows of x that each have a matrix of their own; null: one matrix
  // serves all. Row i of x makes row slots[i] of y.
  const int32_t* offsets;  // [num_groups + 1]
  const int32_t* slots;
  int num_groups;
  const int64_t* table;  // WideGroups
  int group_tiles;       // of a group's matrix
  int blocks_n;          // of a block's tiles
  int log_columns;
  // Of x's codes: [units][m], or null: [m] at x_row_scales.
  const float* x_scales;
  const float* x_row_scales;
  uint32_t w_ring;  // offsets in shared memory
  uint32_t x_ring;
  uint32_t x_scale_ring;
  uint32_t partials;  // of jobs that blocks take alone
  size_t shared_bytes;
};

// x as [rows][k], a copy brings 128 bytes of some rows; packed weights as
// [tiles][halves of units][bytes], a copy brings a unit of a block's tiles.
struct WideMaps {
  CUtensorMap x;
  CUtensorMap w;
};

// Clusters of so many blocks that the current device runs at once.
int64_t WideClustersAtOnce(int cluster, int num_sms);  // wide_clusters_sm90.cu

#define INLAY_WIDE_LAUNCH(name)                                     \
  absl::Status name(const GemmParams& params, const WideMaps& maps, \
                    const QuantForm& form, const WideShape& shape,  \
                    CudaStream& stream)
INLAY_WIDE_LAUNCH(LaunchWideLinear4);  // product_wide_linear4_sm90.cu
INLAY_WIDE_LAUNCH(LaunchWideLinear6);  // product_wide_linear6_sm90.cu
INLAY_WIDE_LAUNCH(LaunchWideTable4);   // product_wide_table4_sm90.cu
INLAY_WIDE_LAUNCH(LaunchWideInt8);     // product_wide_int8_sm90.cu
INLAY_WIDE_LAUNCH(LaunchWideE4M3);     // product_wide_e4m3_sm90.cu
INLAY_WIDE_LAUNCH(LaunchWideCodes);    // product_codes_sm90.cu
#undef INLAY_WIDE_LAUNCH

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_WIDE_SHAPE_H_
