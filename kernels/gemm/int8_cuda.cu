// After products in int8 (int8_cuda.h). Bound by memory; roofline: bytes read
// and written over the copy bandwidth. A thread kCudaVector columns of a row
// (or one, where something does not lie on 16 bytes).
#include "kernels/cuda_row.cuh"
#include "kernels/gemm/int8_cuda.h"

namespace inlay {
namespace {

template <typename Y, int kVector>
__global__ void __launch_bounds__(kCudaMapThreads)
    ScaleProducts(const int32_t* products, const float* x_scales,
                  const float* w_scales, const float* bias,
                  CudaMatrix<const Y> residual, CudaMatrix<Y> y, int64_t n,
                  int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t column =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (column >= n) return;
  const float x_scale = x_scales[row];
  float sums[kVector], scales[kVector], added[kVector];
  if constexpr (kVector == 1) {
    sums[0] = static_cast<float>(products[row * n + column]);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
      const int4 four =
          *reinterpret_cast<const int4*>(products + row * n + column + i);
      sums[i] = static_cast<float>(four.x);
      sums[i + 1] = static_cast<float>(four.y);
      sums[i + 2] = static_cast<float>(four.z);
      sums[i + 3] = static_cast<float>(four.w);
    }
  }
  LoadFloats(w_scales + column, scales);
#pragma unroll
  for (int i = 0; i < kVector; ++i) sums[i] *= x_scale * scales[i];
  if (bias != nullptr) {
    LoadFloats(bias + column, added);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sums[i] += added[i];
  }
  if (residual.data != nullptr) {
    LoadFloats(residual.row(row) + column, added);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sums[i] += added[i];
  }
  StoreFloats(y.row(row) + column, sums);
}

template <typename Y>
absl::Status LaunchScale(const int32_t* products, const float* x_scales,
                         const float* w_scales, const GemmParams& params,
                         CudaStream& stream) {
  const int64_t n = params.y.cols();
  const bool vector = IsCudaVector(n, {&params.y, &params.residual}) &&
                      IsCudaVector(products) && IsCudaVector(w_scales) &&
                      IsCudaVector(params.bias);
  const int64_t chunks = MapChunks(n, vector ? kCudaVector : 1);
  return LaunchCuda(
      "scaling products of int8", stream,
      {params.y.rows() * chunks, kCudaMapThreads},
      vector ? ScaleProducts<Y, kCudaVector> : ScaleProducts<Y, 1>, products,
      x_scales, w_scales, params.bias, CudaMatrix<const Y>(params.residual),
      CudaMatrix<Y>(params.y), n, chunks);
}

}  // namespace

absl::Status RunScaleInt8(const int32_t* products, const float* x_scales,
                          const float* w_scales, const GemmParams& params,
                          CudaStream& stream) {
  return WithFloatType(params.y.dtype, [&](auto element) {
    return LaunchScale<decltype(element)>(products, x_scales, w_scales, params,
                                          stream);
  });
}

}  // namespace inlay
