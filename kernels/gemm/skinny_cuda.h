// The CUDA kernel for linear layers of some dozen rows, for gemm's row, tests
// and benchmarks.
#ifndef INLAY_KERNELS_GEMM_SKINNY_CUDA_H_
#define INLAY_KERNELS_GEMM_SKINNY_CUDA_H_

#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemv_cuda.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

inline constexpr int kMostSkinnyRows = 64;

// Whether it takes these weights and x at all: 16 bits, of one type, k a
// multiple of 64, rows on multiples of 16 bytes, a device of compute
// capability 9.0. So does RunManyRowsGemm. The number of rows does not matter.
bool SkinnyTakes(const GemmDesc& desc, const GemmParams& params,
                 const CudaStream& stream);

// Whether it is the fastest kernel for these weights and x: at most so many
// rows, and it takes them; large matrices and few rows are gemv_sm90.cu's but
// where k is above 16,384.
bool SkinnyServes(const GemmDesc& desc, const GemmParams& params,
                  const CudaStream& stream);

// skinny_sm90.cu. At most kMostSkinnyRows; `fusion` must not normalise. A row's
// bits are the same in every batch.
absl::Status RunSkinnyGemm(const GemmDesc& desc, const GemmParams& params,
                           const GemvFusion& fusion, CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_SKINNY_CUDA_H_
