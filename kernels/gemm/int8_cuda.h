// x and y of products in int8 on CUDA; the weights' codes come from
// RunUnpackCodes (fp8_cuda.h). All pointers are device pointers; codes, scales
// and products lie on multiples of 16 bytes.
#ifndef INLAY_KERNELS_GEMM_INT8_CUDA_H_
#define INLAY_KERNELS_GEMM_INT8_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

// x [m, k] of f16 or bf16 as int8 codes [m, k] and scales [m]: the largest
// magnitude of the row / 127; codes are x * (127 / that) to nearest even. What
// is not finite makes its row's scale NaN. k is a multiple of 8; x lies on a
// multiple of 16 bytes, and so do its rows. Source: "per-token" scales of
// SmoothQuant (arXiv:2211.10438) and of compressed-tensors.
absl::Status RunQuantiseInt8(const TensorView& x, std::byte* codes,
                             float* scales, CudaStream& stream);

// params.y = products * (x_scales of the row * w_scales of the column) + bias +
// residual in float32, rounded once. products [m, n]: int32, n = y's columns.
absl::Status RunScaleInt8(const int32_t* products, const float* x_scales,
                          const float* w_scales, const GemmParams& params,
                          CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_INT8_CUDA_H_
