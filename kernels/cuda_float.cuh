// Element access of the CUDA kernels: plain float types widened to float32 and
// rounded back to nearest even, one at a time or 16 bytes at a time.
#ifndef INLAY_KERNELS_CUDA_FLOAT_CUH_
#define INLAY_KERNELS_CUDA_FLOAT_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>

#include "memory/dtype.h"
#include "memory/tensor.h"

namespace inlay {

// Elements that a thread of a vector kernel handles at once: 16 bytes of a
// 16-bit type, 32 of float32.
inline constexpr int kCudaVector = 8;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

// The two 16-bit floats in `bits`, lower half first.
template <typename T>
__device__ float2 WidenPair(uint32_t bits) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&bits));
  } else {
    return make_float2(__uint_as_float(bits << 16),
                       __uint_as_float(bits & 0xffff0000u));
  }
}

template <typename T>
__device__ uint32_t NarrowPair(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// from[0 .. kCount). kCount is 1, 4 or 8; `from` lies on a multiple of its
// bytes or of 16.
template <int kCount, typename T>
__device__ void LoadFloats(const T* from, float (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = ToFloat(*from);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  } else if constexpr (kCount == 4) {
    const uint2 four = *reinterpret_cast<const uint2*>(from);
    const float2 low = WidenPair<T>(four.x);
    const float2 high = WidenPair<T>(four.y);
    to[0] = low.x;
    to[1] = low.y;
    to[2] = high.x;
    to[3] = high.y;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
      const uint32_t words[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 pair = WidenPair<T>(words[j]);
        to[i + 2 * j] = pair.x;
        to[i + 2 * j + 1] = pair.y;
      }
    }
  }
}

// The way back, under the same conditions.
template <int kCount, typename T>
__device__ void StoreFloats(T* to, const float (&from)[kCount]) {
  if constexpr (kCount == 1) {
    *to = FromFloat<T>(from[0]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      *reinterpret_cast<float4*>(to + i) =
          make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[j] = NarrowPair<T>(from[i + 2 * j], from[i + 2 * j + 1]);
      }
      *reinterpret_cast<uint4*>(to + i) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

// A matrix as a kernel sees it: rows `stride` elements apart.
template <typename T>
struct CudaMatrix {
  __host__ __device__ explicit CudaMatrix(const TensorView& view)
      : data(reinterpret_cast<T*>(view.data)),
        stride(static_cast<int64_t>(view.row_stride_bytes / sizeof(T))) {}
  __device__ T* row(int64_t r) const { return data + r * stride; }

  T* data;
  int64_t stride;
};

// fn(T{}) with the plain float type of `dtype`.
template <typename Fn>
auto WithFloatType(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kF16:
      return fn(__half{});
    case DType::kBF16:
      return fn(__nv_bfloat16{});
    default:
      return fn(0.0f);
  }
}

// Whether rows of `width` elements of all these can be read kCudaVector at a
// time. Views without data do not count.
inline bool IsCudaVector(int64_t width,
                         std::initializer_list<const TensorView*> views) {
  if (width % kCudaVector != 0) return false;
  for (const TensorView* view : views) {
    if (view->row_stride_bytes % 16 != 0) return false;
    if (reinterpret_cast<uintptr_t>(view->data) % 16 != 0) return false;
  }
  return true;
}

inline bool IsCudaVector(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_FLOAT_CUH_
