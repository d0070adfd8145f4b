// y of products in int8 on CUDA; the weights' codes come from RunUnpackCodes
// (fp8_cuda.h), x's from kernels/rounding. All pointers are device pointers;
// codes, scales and products lie on multiples of 16 bytes.
#ifndef INLAY_KERNELS_GEMM_INT8_CUDA_H_
#define INLAY_KERNELS_GEMM_INT8_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// params.y = products * (x_scales of the row * w_scales of the column) + bias +
// residual in float32, rounded once. products [m, n]: int32, n = y's columns.
absl::Status RunScaleInt8(const int32_t* products, const float* x_scales,
                          const float* w_scales, const GemmParams& params,
                          CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_INT8_CUDA_H_
