// Before and after products in int8 (int8_cuda.h). Both are bound by memory;
// roofline: bytes read and written over the copy bandwidth.
//
// x: a block a row, which it reads twice, the second time from its L1; 32
// floats of shared memory for the warps' largest, one barrier.
// y: a thread kCudaVector columns of a row (or one, where something does not
// lie on 16 bytes).
#include <cfloat>

#include "kernels/cuda_row.cuh"
#include "kernels/gemm/int8_cuda.h"

namespace inlay {
namespace {

constexpr int kThreads = 256;
constexpr float kMostCode = 127.0f;

// The largest magnitude; infinity where one is not finite.
__device__ float LargestOf(const float (&x)[kCudaVector]) {
  float most = 0.0f;
#pragma unroll
  for (const float value : x) {
    const float size = fabsf(value);
    most = size <= FLT_MAX ? fmaxf(most, size) : __uint_as_float(0x7f800000u);
  }
  return most;
}

__device__ float LargestOfBlock(float most) {
  __shared__ float mosts[kThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  }
  if (threadIdx.x % 32 == 0) mosts[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (const float other : mosts) most = fmaxf(most, other);
  return most;
}

__device__ void StoreCodes(const float (&x)[kCudaVector], float inverse,
                           int8_t* to) {
  uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kCudaVector; ++i) {
    // 0 of NaN; within [-127, 127] of the rest.
    const int code = __float2int_rn(x[i] * inverse);
    words[i / 4] |= (static_cast<uint32_t>(code) & 0xffu) << 8 * (i % 4);
  }
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    QuantiseRowsInt8(CudaMatrix<const T> x, int64_t k, int8_t* codes,
                     float* scales) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const auto first = static_cast<int64_t>(threadIdx.x * kCudaVector);
  float values[kCudaVector];
  float most = 0.0f;
  for (int64_t c = first; c < k; c += kThreads * kCudaVector) {
    LoadFloats(x.row(row) + c, values);
    most = fmaxf(most, LargestOf(values));
  }
  most = LargestOfBlock(most);
  const bool finite = most <= FLT_MAX;
  const float inverse =
      finite && most > 0.0f ? fminf(kMostCode / most, FLT_MAX) : 0.0f;
  for (int64_t c = first; c < k; c += kThreads * kCudaVector) {
    LoadFloats(x.row(row) + c, values);
    StoreCodes(values, inverse, codes + row * k + c);
  }
  if (threadIdx.x == 0) {
    scales[row] = finite ? most / kMostCode : __uint_as_float(0x7fc00000u);
  }
}

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

absl::Status RunQuantiseInt8(const TensorView& x, std::byte* codes,
                             float* scales, CudaStream& stream) {
  return WithFloatType(x.dtype, [&](auto element) {
    using T = decltype(element);
    return LaunchCuda("quantising to int8", stream, {x.rows(), kThreads},
                      QuantiseRowsInt8<T>, CudaMatrix<const T>(x), x.cols(),
                      reinterpret_cast<int8_t*>(codes), scales);
  });
}

absl::Status RunScaleInt8(const int32_t* products, const float* x_scales,
                          const float* w_scales, const GemmParams& params,
                          CudaStream& stream) {
  return WithFloatType(params.y.dtype, [&](auto element) {
    return LaunchScale<decltype(element)>(products, x_scales, w_scales, params,
                                          stream);
  });
}

}  // namespace inlay
