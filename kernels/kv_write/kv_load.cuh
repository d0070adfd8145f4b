// Rows of plain floats and of the KV cache, widened to float32 four elements at
// a time: every format (memory/kv/kv_format.h), known only when a kernel runs.
// For kernels that nothing is tuned in.
#ifndef INLAY_KERNELS_KV_WRITE_KV_LOAD_CUH_
#define INLAY_KERNELS_KV_WRITE_KV_LOAD_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "memory/kv/kv_format.h"

namespace inlay {

// Elements [at, at + 4) of a row of f32, f16 or bf16; `at` is a multiple of 4.
__device__ inline float4 LoadPlain4(DType dtype, const void* row, int at) {
  if (dtype == DType::kF32) {
    return *reinterpret_cast<const float4*>(static_cast<const float*>(row) +
                                            at);
  }
  const uint2 bits =
      *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(row) + at);
  float2 low;
  float2 high;
  if (dtype == DType::kF16) {
    low = __half22float2(reinterpret_cast<const __half2&>(bits.x));
    high = __half22float2(reinterpret_cast<const __half2&>(bits.y));
  } else {
    low = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits.x));
    high = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits.y));
  }
  return {low.x, low.y, high.x, high.y};
}

__device__ inline float DecodeF8(uint32_t bits) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(
      static_cast<__nv_fp8_storage_t>(bits & 0xff), __NV_E4M3);
  return __half2float(__half(half));
}

// Elements [at, at + 4) of a row of the cache; `at` is a multiple of 4.
__device__ inline float4 LoadKv4(DType dtype, const std::byte* row, int at) {
  if (dtype == DType::kI8 || dtype == DType::kF8E4M3) {
    const float scale = *reinterpret_cast<const float*>(row);
    const uint32_t codes =
        *reinterpret_cast<const uint32_t*>(row + kKvScaleBytes + at);
    const auto decode = [&](int shift) {
      const uint32_t code = codes >> shift;
      return scale * (dtype == DType::kI8
                          ? static_cast<float>(static_cast<int8_t>(code))
                          : DecodeF8(code));
    };
    return {decode(0), decode(8), decode(16), decode(24)};
  }
  if (dtype == DType::kKvQ4) {
    const std::byte* group = row + at / kKvQ4Group * 20;
    const float2 scale_least =
        __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(group));
    const uint32_t codes =
        *reinterpret_cast<const uint32_t*>(group + 4 + at % 16) >>
        (at % 32 < 16 ? 0 : 4);
    const auto decode = [&](int shift) {
      return __fmaf_rn(static_cast<float>(codes >> shift & 15), scale_least.x,
                       scale_least.y);
    };
    return {decode(0), decode(8), decode(16), decode(24)};
  }
  return LoadPlain4(dtype, row, at);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_KV_WRITE_KV_LOAD_CUH_
