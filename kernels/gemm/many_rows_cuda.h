// The CUDA kernel for linear layers of many rows whose sums have one order, and
// that order for all numbers of rows, for gemm's row, tests and benchmarks.
#ifndef INLAY_KERNELS_GEMM_MANY_ROWS_CUDA_H_
#define INLAY_KERNELS_GEMM_MANY_ROWS_CUDA_H_

#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// What one launch takes, in microseconds, as measured on an H200 (CUDA.md).
double ManyRowsMicroseconds(const GemmDesc& desc, int64_t rows, int num_sms);

// many_rows_sm90.cu, for what SkinnyTakes(). A row's bits are those that
// RunSkinnyGemm gives it.
absl::Status RunManyRowsGemm(const GemmDesc& desc, const GemmParams& params,
                             CudaStream& stream);

// By that or by RunSkinnyGemm, which has 64 rows at a time: whichever takes
// less time.
absl::Status RunGemmInOneOrder(const GemmDesc& desc, const GemmParams& params,
                               CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_MANY_ROWS_CUDA_H_
