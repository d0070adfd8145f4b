// EncodeKvRow (kv_row.h) for a warp: the same bytes, by the same float32
// operations, each rounded once. The intrinsics keep the compiler from fusing
// them. Knows no blocks.
#ifndef INLAY_KERNELS_KV_WRITE_KV_ROW_CUH_
#define INLAY_KERNELS_KV_WRITE_KV_ROW_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda_float.cuh"
#include "memory/kv/kv_layout.h"

namespace inlay {

inline constexpr unsigned kFullWarp = 0xffffffffu;

// kKvNotFiniteBits, kKvLeastScale, kKvToInteger of kv_row.h, as device
// literals.
inline constexpr uint32_t kCudaKvNotFiniteBits = 0x7e800000u;
inline constexpr float kCudaKvLeastScale = 0x1p-126f;
inline constexpr float kCudaKvToInteger = 0x1.8p23f;
inline constexpr uint32_t kCudaKvNan = 0x7fc00000u;

// Rounding to nearest even; NaN stays NaN (quiet), with its sign and payload.
__device__ inline uint16_t RoundToBF16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

__device__ inline uint16_t RoundToF16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return ((bits >> 16) & 0x8000u) | 0x7e00u;
  }
  return __half_as_ushort(__float2half_rn(value));
}

// F32ToF8E4M3 of memory/dtype.h for finite values.
__device__ inline uint32_t RoundToF8(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x3c800000u) {
    const float aligned = __fadd_rn(__uint_as_float(magnitude), 0x1p14f);
    return sign | (__float_as_uint(aligned) - 0x46800000u);
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | min((rounded - 0x3c000000u) >> 20, 0x7eu);
}

// `at(i)` is element i of the row, 0 <= i < head_dim. All lanes of a full warp
// call these; `row` is 4-byte aligned.
template <typename At>
__device__ uint32_t WarpMostBits(int lane, int head_dim, const At& at) {
  uint32_t most = 0;
  for (int i = lane; i < head_dim; i += 32) {
    most = max(most, __float_as_uint(at(i)) & 0x7fffffffu);
  }
  return __reduce_max_sync(kFullWarp, most);
}

template <bool kF8, typename At>
__device__ void WarpEncodeBytes(int lane, int head_dim, const At& at,
                                uint32_t* row) {
  const uint32_t most = WarpMostBits(lane, head_dim, at);
  const bool finite = most < kCudaKvNotFiniteBits;
  uint32_t scale_bits;
  float inverse;
  if constexpr (kF8) {
    const uint32_t exponent = max((most + 0x1fffffu) >> 23, 9u) - 8;
    scale_bits = exponent << 23;
    inverse = __uint_as_float((254 - exponent) << 23);
  } else {
    const float scale =
        fmaxf(__fdiv_rn(__uint_as_float(most), 127.0f), kCudaKvLeastScale);
    scale_bits = __float_as_uint(scale);
    inverse = __frcp_rn(scale);
  }
  if (lane == 0) row[0] = finite ? scale_bits : kCudaKvNan;
  for (int i = 4 * lane; i < head_dim; i += 128) {
    uint32_t codes = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!finite || i + j >= head_dim) continue;
      const float y = __fmul_rn(at(i + j), inverse);
      const uint32_t code =
          kF8 ? RoundToF8(y)
              : __float_as_uint(__fadd_rn(y, kCudaKvToInteger)) & 0xffu;
      codes |= code << (8 * j);
    }
    row[1 + i / 4] = codes;
  }
}

// One group of `count` elements in 20 bytes; lane i has element min(i, count -
// 1).
__device__ inline void WarpEncodeQ4Group(int lane, float x, uint32_t* group) {
  float least = x;
  float most = x;
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    least = fminf(least, __shfl_xor_sync(kFullWarp, least, other));
    most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, other));
  }
  // KvQ4GroupScale.
  const uint32_t bits = __float_as_uint(__fadd_rn(least, 0.0f));
  const uint32_t least_bits = (least < 0.0f ? bits + 0xffffu : bits) >> 16;
  least = __uint_as_float(least_bits << 16);
  const float scale =
      fmaxf(__fdiv_rn(__fsub_rn(most, least), 15.0f), kCudaKvLeastScale);
  const uint32_t scale_bits = (__float_as_uint(scale) + 0xffffu) >> 16;
  const float inverse = __frcp_rn(__uint_as_float(scale_bits << 16));
  const float y = __fmul_rn(__fsub_rn(x, least), inverse);
  const uint32_t code = __float_as_uint(__fadd_rn(y, kCudaKvToInteger)) & 15u;
  const uint32_t high = __shfl_down_sync(kFullWarp, code, 16);
  uint32_t word = code | high << 4;
  word |= __shfl_down_sync(kFullWarp, word, 1) << 8;
  word |= __shfl_down_sync(kFullWarp, word, 2) << 16;
  if (lane == 0) group[0] = scale_bits | least_bits << 16;
  if (lane < 16 && lane % 4 == 0) group[1 + lane / 4] = word;
}

template <typename At>
__device__ void WarpEncodeQ4(int lane, int head_dim, const At& at,
                             uint32_t* row) {
  const bool finite = WarpMostBits(lane, head_dim, at) < kCudaKvNotFiniteBits;
  for (int i = 0; i < head_dim; i += kKvQ4Group, row += 5) {
    if (finite) {
      WarpEncodeQ4Group(lane, at(min(i + lane, head_dim - 1)), row);
    } else if (lane < 5) {
      row[lane] = lane == 0 ? kCudaKvNan >> 16 : 0;
    }
  }
}

// Any cache format; kVector elements at a time of the plain ones, whose rows
// and `at.Load` must then be 16-byte aligned.
template <DType kKv, int kVector, typename At>
__device__ void WarpEncodeKvRow(int lane, int head_dim, const At& at,
                                std::byte* row) {
  if constexpr (kKv == DType::kI8 || kKv == DType::kF8E4M3) {
    WarpEncodeBytes<kKv == DType::kF8E4M3>(lane, head_dim, at,
                                           reinterpret_cast<uint32_t*>(row));
  } else if constexpr (kKv == DType::kKvQ4) {
    WarpEncodeQ4(lane, head_dim, at, reinterpret_cast<uint32_t*>(row));
  } else {
    for (int i = lane * kVector; i < head_dim; i += 32 * kVector) {
      float v[kVector];
      at.Load(i, v);
      if constexpr (kKv == DType::kF32) {
        StoreFloats<kVector>(reinterpret_cast<float*>(row) + i, v);
      } else {
        uint16_t bits[kVector];
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          bits[j] = kKv == DType::kF16 ? RoundToF16(v[j]) : RoundToBF16(v[j]);
        }
        auto* to = reinterpret_cast<uint16_t*>(row) + i;
        if constexpr (kVector == 8) {
          *reinterpret_cast<uint4*>(to) =
              make_uint4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16,
                         bits[4] | bits[5] << 16, bits[6] | bits[7] << 16);
        } else {
          *to = bits[0];
        }
      }
    }
  }
}

// fn(std::integral_constant<DType, kv>{}) with a KV format.
template <typename Fn>
auto WithKvFormat(DType kv, Fn fn) {
  switch (kv) {
    case DType::kF16:
      return fn(std::integral_constant<DType, DType::kF16>{});
    case DType::kBF16:
      return fn(std::integral_constant<DType, DType::kBF16>{});
    case DType::kI8:
      return fn(std::integral_constant<DType, DType::kI8>{});
    case DType::kF8E4M3:
      return fn(std::integral_constant<DType, DType::kF8E4M3>{});
    case DType::kKvQ4:
      return fn(std::integral_constant<DType, DType::kKvQ4>{});
    default:
      return fn(std::integral_constant<DType, DType::kF32>{});
  }
}

// One layer's cache in one range, as a kernel sees it.
struct CudaKvLayer {
  explicit CudaKvLayer(const KvLayerView& view)
      : base(view.base.base),
        block_stride(view.block_stride_bytes),
        key_offset(view.k_offset_bytes),
        value_offset(view.v_offset_bytes),
        row_bytes(static_cast<int64_t>(KvRowBytes(view.dtype, view.head_dim))),
        block_size(view.block_size) {}

  // Row of K (or V) of a token's slot, not negative, and head.
  __device__ std::byte* Row(bool value, int64_t slot, int head) const {
    // Divisions of 64 bits take long; a cache of 2^32 tokens is rare.
    const bool narrow = slot >> 32 == 0;
    const int64_t block =
        narrow ? static_cast<uint32_t>(slot) / static_cast<uint32_t>(block_size)
               : slot / block_size;
    const int64_t row =
        int64_t{head} * block_size + (slot - block * block_size);
    return base + block * block_stride + (value ? value_offset : key_offset) +
           row * row_bytes;
  }
  // Whether each row begins on a multiple of 16 bytes.
  bool IsVector() const {
    return IsCudaVector(base) && block_stride % 16 == 0 &&
           key_offset % 16 == 0 && value_offset % 16 == 0 &&
           row_bytes % 16 == 0;
  }

  std::byte* base;
  int64_t block_stride;
  int64_t key_offset;
  int64_t value_offset;
  int64_t row_bytes;
  int block_size;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_KV_WRITE_KV_ROW_CUH_
