// The quantised rows of a KV cache (bit layout: memory/kv/kv_format.h): scalar
// reference codec, and the choice of scales that every row of the op shares.
// A row's bytes depend on that row's floats alone, and the scalar and the
// vector row of kv_write write the same ones; so all arithmetic here is single
// float32 operations, rounded once, in a fixed order. Knows no blocks.
#ifndef INLAY_KERNELS_KV_WRITE_KV_ROW_H_
#define INLAY_KERNELS_KV_WRITE_KV_ROW_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "memory/kv/kv_layout.h"

namespace inlay {

// x[0 .. head_dim) -> KvRowBytes(dtype, head_dim) bytes at `row`; any dtype of
// IsKvFormat().
void EncodeKvRow(DType dtype, const float* x, int head_dim, std::byte* row);
// The way back, into x[0 .. head_dim).
void DecodeKvRow(DType dtype, const std::byte* row, int head_dim, float* x);

// A quantised row with a magnitude of 2^126 or more counts as not finite, so
// that neither differences nor what the codes decode to can overflow.
inline constexpr uint32_t kKvNotFiniteBits = 0x7e800000u;
// Scales are at least the smallest normal float32: their inverses are finite.
inline constexpr float kKvLeastScale = std::numeric_limits<float>::min();
inline constexpr float kKvNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr uint16_t kKvNanBF16 = 0x7fc0;

// x / scale is computed as x * inverse.
struct KvScale {
  float scale;
  float inverse;
};

// i8: the codes -127 to 127 span [-most, most].
inline KvScale KvI8Scale(float most) {
  const float scale = std::max(most / 127.0f, kKvLeastScale);
  return {scale, 1.0f / scale};
}

// f8_e4m3: the least power of two that brings `most` to 448 = 1.75 * 2^8 or
// below. Multiplying by it is exact, so that a code keeps the relative error of
// the format, 2^-4, down to 2^-15 of the row's largest magnitude.
inline KvScale KvF8Scale(float most) {
  // Mantissas above 1.75 carry into the exponent.
  const uint32_t up = std::bit_cast<uint32_t>(most) + 0x1fffffu;
  const uint32_t exponent = std::max(up >> 23, 9u) - 8;
  return {std::bit_cast<float>(exponent << 23),
          std::bit_cast<float>((254 - exponent) << 23)};
}

struct KvQ4Scale {
  uint16_t scale_bits;
  uint16_t least_bits;
  float least;
  float inverse;
};

// kv_q4: the codes 0 to 15 span at least [least, most]: what bf16 cannot hold
// of `least` goes down, of the scale up.
inline KvQ4Scale KvQ4GroupScale(float least, float most) {
  // Where -0 and +0 are both least, either could have been found: make it +0.
  const auto least_bits = std::bit_cast<uint32_t>(least + 0.0f);
  const uint32_t down = least < 0.0f ? least_bits + 0xffffu : least_bits;
  KvQ4Scale result;
  result.least_bits = static_cast<uint16_t>(down >> 16);
  result.least = BF16ToF32(result.least_bits);
  const float scale = std::max((most - result.least) / 15.0f, kKvLeastScale);
  result.scale_bits =
      static_cast<uint16_t>((std::bit_cast<uint32_t>(scale) + 0xffffu) >> 16);
  result.inverse = 1.0f / BF16ToF32(result.scale_bits);
  return result;
}

// Adding 1.5 * 2^23 leaves a float32 below 2^22 in magnitude, rounded to the
// nearest even integer, in the low bits of the sum, two's complement.
inline constexpr float kKvToInteger = 0x1.8p23f;

}  // namespace inlay

#endif  // INLAY_KERNELS_KV_WRITE_KV_ROW_H_
