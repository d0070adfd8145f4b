// The arithmetic of rms_norm on CUDA, for kernels that normalise what they
// read: the same operations in the same order give the same bits. Nothing is
// left to the compiler to fuse.
#ifndef INLAY_KERNELS_RMS_NORM_RMS_NORM_CUH_
#define INLAY_KERNELS_RMS_NORM_RMS_NORM_CUH_

#include "kernels/cuda_row.cuh"

namespace inlay {

template <int kCount>
__device__ float AddSquares(const float (&v)[kCount], float sum) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) sum = fmaf(v[j], v[j], sum);
  return sum;
}

__device__ inline float RmsNormFactor(float squares, int64_t width,
                                      float epsilon) {
  const float mean = __fdiv_rn(squares, static_cast<float>(width));
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, epsilon)));
}

// v, the row's elements from `first` on, becomes its part of the norm.
template <int kCount>
__device__ void RmsNormScale(float (&v)[kCount], float factor,
                             const float* weight, int64_t first) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) v[j] = __fmul_rn(v[j], factor);
  if (weight == nullptr) return;
  float w[kCount];
  LoadFloats<kCount>(weight + first, w);
#pragma unroll
  for (int j = 0; j < kCount; ++j) v[j] = __fmul_rn(v[j], w[j]);
}

// Warps that rms_norm gives a row it reads kCudaVector elements at a time.
__device__ inline int RmsNormWarps(int64_t width) {
  if (width <= kWarpRowWidth) return 1;
  constexpr int64_t kWarpWidth = 32 * kCudaVector;
  return static_cast<int>(
      min((width + kWarpWidth - 1) / kWarpWidth, int64_t{32}));
}

// The sum that warp `warp` of `warps` contributes: for all its lanes. WarpSum
// over such sums, a lane each, gives the row's. `first`: the lane's first
// elements, zeros where there are none.
__device__ inline float RmsNormPart(const float (&first)[kCudaVector],
                                    const float* x, int64_t width, int warp,
                                    int warps, int lane) {
  float squares = AddSquares(first, 0.0f);
  for (int64_t i = ((warps + warp) * 32 + lane) * kCudaVector; i < width;
       i += warps * 32 * kCudaVector) {
    float v[kCudaVector];
    LoadFloats<kCudaVector>(x + i, v);
    squares = AddSquares(v, squares);
  }
  return WarpSum(squares);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_RMS_NORM_RMS_NORM_CUH_
