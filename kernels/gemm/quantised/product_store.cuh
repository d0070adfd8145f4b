// How a tile of 16 rows of w times 8 rows of x leaves a kernel.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_STORE_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_STORE_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"

namespace inlay {
namespace {

// What goes out of a tile: bias and residual added, rounded.
template <typename T, class Shape>
__device__ void StoreQuantTile(const Shape& shape, int first_n, int first_m,
                               const float (&values)[4], const float* bias,
                               const TensorView& residual,
                               const TensorView& y) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int m = first_m + i % 2;
    const int64_t n = first_n + i / 2 * 8;
    if (m >= shape.m || n >= shape.n) continue;
    float value = values[i];
    float added = bias != nullptr ? bias[n] : 0.0f;
    if (residual.data != nullptr) {
      added += shape.narrow ? ToFloat(CudaMatrix<const T>(residual).row(m)[n])
                            : CudaMatrix<const float>(residual).row(m)[n];
    }
    value += added;
    if (shape.narrow) {
      CudaMatrix<T>(y).row(m)[n] = FromFloat<T>(value);
    } else {
      CudaMatrix<float>(y).row(m)[n] = value;
    }
  }
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_STORE_CUH_
