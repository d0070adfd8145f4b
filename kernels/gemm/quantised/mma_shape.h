// What a launch of the kernel for every GPU (product_mma.cuh) is told, and the
// entry of each form.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_MMA_SHAPE_H_
#define INLAY_KERNELS_GEMM_QUANTISED_MMA_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quantised/layout.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kQuantMmaWarps = 4;  // of a block; they share K
// Bytes between rows of x in shared memory, of a unit's columns: ldmatrix meets
// all banks.
inline constexpr int kQuantMmaStride = 2 * kQuantColumns + 16;

struct QuantMmaShape {
  int64_t n;
  int64_t k;
  int64_t tile_bytes;
  int m;        // at most 8 x_tiles
  int x_tiles;  // 1, 2 or 4, of 8 rows of x
  int tiles;    // of 16 rows of w
  int units;    // of K
  int unit_bytes;
  int w_bytes;      // of a warp's stage: two units
  int stage_bytes;  // of a block's stage: units of w, then of x
  int stages;
  bool narrow;  // y is of the type of x; otherwise f32
};

#define INLAY_QUANT_LAUNCH(name)                                     \
  absl::Status name(const GemmParams& params, const QuantForm& form, \
                    const QuantMmaShape& shape, CudaStream& stream)
INLAY_QUANT_LAUNCH(LaunchMmaLinear4);  // product_mma_linear4.cu
INLAY_QUANT_LAUNCH(LaunchMmaLinear6);  // product_mma_linear6.cu
INLAY_QUANT_LAUNCH(LaunchMmaTable4);   // product_mma_table4.cu
INLAY_QUANT_LAUNCH(LaunchMmaInt8);     // product_mma_int8.cu
INLAY_QUANT_LAUNCH(LaunchMmaE4M3);     // product_mma_e4m3.cu
#undef INLAY_QUANT_LAUNCH

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_MMA_SHAPE_H_
