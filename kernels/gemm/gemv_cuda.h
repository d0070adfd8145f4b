// The CUDA kernels behind gemm's rows, for these rows and their tests and
// benchmarks: linear layers of few rows, which memory bounds. Knows no cuBLAS.
#ifndef INLAY_KERNELS_GEMM_GEMV_CUDA_H_
#define INLAY_KERNELS_GEMM_GEMV_CUDA_H_

#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// How the tensor-core kernel cuts a matrix. A function of the matrix and the
// device, never of the batch: so a row's sums are the same in every batch.
struct GemvPlan {
  int cluster = 1;       // blocks that share K; 1, 2, 4 or 8
  int num_clusters = 1;  // each takes every num_clusters-th tile of rows
};
GemvPlan PlanGemv(int64_t n, int64_t k, int num_sms, int sm);

// Whether the tensor-core kernel serves: weights and x of the same 16-bit type,
// y of that or f32, everything on multiples of 16 bytes, and shared memory for
// at least one row of x. Does not depend on m.
bool IsTensorGemv(const GemmDesc& desc, const GemmParams& params,
                  const GemvPlan& plan, int sm);

// IsTensorGemv. Reads the weights once for every kGemvRows rows.
inline constexpr int kGemvRows = 16;
absl::Status RunTensorGemv(const GemmDesc& desc, const GemmParams& params,
                           const GemvPlan& plan, CudaStream& stream);

// Any plain float types; y that of x, or f32: a warp an output feature. Reads
// the weights once for every 8 rows.
absl::Status RunGemvPlain(const GemmDesc& desc, const GemmParams& params,
                          CudaStream& stream);

// y = bias + residual (which may be empty, or y), rounded to y's type.
absl::Status RunStartWithBias(const GemmDesc& desc, const GemmParams& params,
                              CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMV_CUDA_H_
