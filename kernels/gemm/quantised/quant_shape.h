// What a launch of the kernel for Hopper (product_sm90.cuh) is told, and the
// entry of each form.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_QUANT_SHAPE_H_
#define INLAY_KERNELS_GEMM_QUANTISED_QUANT_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kMostQuantWarps = 16;
inline constexpr int kMostQuantSlots = 4;
inline constexpr int kQuantSharedHead = 4096;  // barriers and zeros
// Barriers of stages: what is left of the head.
inline constexpr int kMostQuantStages = (kQuantSharedHead - 1024) / 8;

struct QuantShape {
  int64_t n;
  int64_t k;
  int64_t tile_bytes;
  int m;
  int tiles;  // of 16 rows of w
  int jobs;   // of two tiles
  int units;  // of K
  int unit_bytes;
  int cluster;  // cluster, warps, lanes and slots are powers of two
  int log_cluster;
  int num_clusters;
  int warps;
  int log_warps;
  int lanes;
  int log_lanes;
  int stage_units;
  int stage_bytes;
  int stages;
  int slots;
  int log_slots;
  int x_stride;   // bytes between rows of x in shared memory
  bool copies_x;  // x lies as bulk copies need it
  bool narrow;    // y is of the type of x; otherwise f32
  size_t shared_bytes;
};

#define INLAY_QUANT_LAUNCH(name)                                     \
  absl::Status name(const GemmParams& params, const QuantForm& form, \
                    const QuantShape& shape, CudaStream& stream)
INLAY_QUANT_LAUNCH(LaunchLinear4);  // product_linear4_sm90.cu
INLAY_QUANT_LAUNCH(LaunchLinear6);  // product_linear6_sm90.cu
INLAY_QUANT_LAUNCH(LaunchTable4);   // product_table4_sm90.cu
INLAY_QUANT_LAUNCH(LaunchInt8);     // product_int8_sm90.cu
INLAY_QUANT_LAUNCH(LaunchE4M3);     // product_e4m3_sm90.cu
#undef INLAY_QUANT_LAUNCH

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_QUANT_SHAPE_H_
