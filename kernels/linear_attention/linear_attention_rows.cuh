// Rows of activations as linear_attention reads and writes them on CUDA: four
// neighbours at a time, as they lie in memory, widened when they are needed;
// what feature maps make of them.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_ROWS_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_ROWS_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/linear_attention/linear_attention.h"

namespace inlay {

struct Rows {
  explicit Rows(const TensorView& view)
      : data(view.data), stride(static_cast<int64_t>(view.row_stride_bytes)) {}
  template <typename T>
  __device__ T* row(int64_t r) const {
    return reinterpret_cast<T*>(data + r * stride);
  }

  std::byte* data;
  int64_t stride;
};

// Four neighbours of a row as they lie in memory.
using Four = uint4;

// Elements [first, first + 4) of a row of `width`; zeros beyond.
__device__ inline Four LoadFour(const std::byte* row, int first, int width,
                                DType type, bool aligned) {
  Four four = {};
  if (type == DType::kF32) {
    const auto* from = reinterpret_cast<const uint32_t*>(row) + first;
    if (aligned && first < width) {
      four = *reinterpret_cast<const uint4*>(from);
    } else {
      if (first < width) four.x = from[0];
      if (first + 1 < width) four.y = from[1];
      if (first + 2 < width) four.z = from[2];
      if (first + 3 < width) four.w = from[3];
    }
    return four;
  }
  const auto* from = reinterpret_cast<const uint16_t*>(row) + first;
  if (aligned && first < width) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    four.x = two.x;
    four.y = two.y;
  } else {
    if (first < width) four.x = from[0];
    if (first + 1 < width) four.x |= uint32_t{from[1]} << 16;
    if (first + 2 < width) four.y = from[2];
    if (first + 3 < width) four.y |= uint32_t{from[3]} << 16;
  }
  return four;
}

__device__ inline float4 Widen(const Four& four, DType type) {
  if (type == DType::kF32) {
    return make_float4(__uint_as_float(four.x), __uint_as_float(four.y),
                       __uint_as_float(four.z), __uint_as_float(four.w));
  }
  const bool half = type == DType::kF16;
  const float2 low =
      half ? WidenPair<__half>(four.x) : WidenPair<__nv_bfloat16>(four.x);
  const float2 high =
      half ? WidenPair<__half>(four.y) : WidenPair<__nv_bfloat16>(four.y);
  return make_float4(low.x, low.y, high.x, high.y);
}

template <typename T>
__device__ void StoreFourAs(const float4& four, T* to, int count,
                            bool aligned) {
  const float values[] = {four.x, four.y, four.z, four.w};
  if (aligned) {
    if constexpr (sizeof(T) == 4) {
      *reinterpret_cast<float4*>(to) = four;
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(NarrowPair<T>(four.x, four.y),
                                                 NarrowPair<T>(four.z, four.w));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) to[i] = FromFloat<T>(values[i]);
  }
}

// The way back to a row of `width`.
__device__ inline void StoreFour(const float4& four, std::byte* row, int first,
                                 int width, DType type, bool aligned) {
  const int count = width - first;
  if (type == DType::kF32) {
    StoreFourAs(four, reinterpret_cast<float*>(row) + first, count, aligned);
  } else if (type == DType::kF16) {
    StoreFourAs(four, reinterpret_cast<__half*>(row) + first, count, aligned);
  } else {
    StoreFourAs(four, reinterpret_cast<__nv_bfloat16*>(row) + first, count,
                aligned);
  }
}

// Whether rows begin where four elements can be read at once.
inline bool IsAlignedForFours(const TensorView& view) {
  const size_t bytes = 4 * RowBytes(view.dtype, 1);
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0 &&
         view.row_stride_bytes % bytes == 0;
}

// NaN stays.
__device__ inline float MapFeature(FeatureMap map, float x) {
  if (map == FeatureMap::kEluPlusOne) return x > 0.0f ? x + 1.0f : expf(x);
  return map == FeatureMap::kRelu && x < 0.0f ? 0.0f : x;
}

// Of keys [first, first + 4); zeros from key_dim on.
__device__ inline float4 MapFeatures(FeatureMap map, const float4& x, int first,
                                     int key_dim) {
  if (map == FeatureMap::kNone) return x;
  return make_float4(first < key_dim ? MapFeature(map, x.x) : 0.0f,
                     first + 1 < key_dim ? MapFeature(map, x.y) : 0.0f,
                     first + 2 < key_dim ? MapFeature(map, x.z) : 0.0f,
                     first + 3 < key_dim ? MapFeature(map, x.w) : 0.0f);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_ROWS_CUH_
