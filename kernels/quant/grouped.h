// Our own formats for quantised checkpoints that keep scales beside the codes
// (GPTQ, AWQ, compressed-tensors, FP8): a group of kCount elements with float32
// scale and minimum, so that whatever scale and zero point a checkpoint has
// (min = -scale * zero) goes in unchanged. All arithmetic is float32, the
// product rounded before the sum.
#ifndef INLAY_KERNELS_QUANT_GROUPED_H_
#define INLAY_KERNELS_QUANT_GROUPED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "memory/dtype.h"

namespace inlay {

// value = scale * code + min.
//
//   byte 0         f32 scale
//   byte 4         f32 min
//   byte 8+16r+i   low nibble: code of element 32 r + i; high nibble: of
//                  element 32 r + 16 + i (i < 16)
template <int kCount>
struct U4Group {
  float scale;
  float min;
  uint8_t codes[kCount / 2];

  void Decode(float* dst) const {
    uint8_t unpacked[kCount];
    UnpackBits<4, 16, kCount>(codes, unpacked);
    for (int i = 0; i < kCount; ++i) {
      dst[i] = scale * static_cast<float>(unpacked[i]) + min;
    }
  }

  void Encode(const float* src) {
    const Range range = RangeOf(src, kCount);
    scale = range.most / 15.0f - range.least / 15.0f;
    min = range.least;
    const float inverse = InverseScale(scale);
    uint8_t unpacked[kCount];
    for (int i = 0; i < kCount; ++i) {
      unpacked[i] =
          static_cast<uint8_t>(RoundCode((src[i] - min) * inverse, 0, 15));
    }
    PackBits<4, 16, kCount>(unpacked, codes);
  }
};

// value = scale * code + min.
//
//   byte 0    f32 scale
//   byte 4    f32 min
//   byte 8+i  int8 code of element i
template <int kCount>
struct I8Group {
  float scale;
  float min;
  int8_t codes[kCount];

  void Decode(float* dst) const {
    for (int i = 0; i < kCount; ++i) {
      dst[i] = scale * static_cast<float>(codes[i]) + min;
    }
  }

  void Encode(const float* src) {
    const Range range = RangeOf(src, kCount);
    scale = range.most / 255.0f - range.least / 255.0f;
    min = range.least + 128.0f * scale;
    const float inverse = InverseScale(scale);
    for (int i = 0; i < kCount; ++i) {
      codes[i] =
          static_cast<int8_t>(RoundCode((src[i] - min) * inverse, -128, 127));
    }
  }
};

// The least power of two that is not less; of 0, and of what is not finite,
// the same.
inline float PowerNotBelow(float value) {
  if (value == 0.0f || !std::isfinite(value)) return value;
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  // frexp's fraction is in [0.5, 1); the largest exponent is kept finite.
  return std::ldexp(1.0f,
                    std::min(fraction == 0.5f ? exponent - 1 : exponent, 127));
}

// value = scale * e4m3.
//
//   byte 0    f32 scale
//   byte 4+i  OCP e4m3 of element i
//
// Groups of 128 are encoded with powers of two for scales: where in a binade
// their largest value lies makes no difference to a floating-point code, and
// such groups can be brought to one scale a row without being rounded again
// (kernels/gemm/FP8.md). Of 32 values the largest is so much of their energy
// that it would: 7 % larger errors.
template <int kCount>
struct F8Group {
  float scale;
  uint8_t codes[kCount];

  void Decode(float* dst) const {
    for (int i = 0; i < kCount; ++i) dst[i] = scale * F8E4M3ToF32(codes[i]);
  }

  void Encode(const float* src) {
    scale = std::abs(Extreme(src, kCount)) / 448.0f;
    if (kCount == 128) scale = PowerNotBelow(scale);
    const float inverse = InverseScale(scale);
    for (int i = 0; i < kCount; ++i) codes[i] = F32ToF8E4M3(src[i] * inverse);
  }
};

template <typename Group, int kCount>
void DecodeGroups(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b) {
    LoadBlock<Group>(src, b).Decode(dst + b * kCount);
  }
}

template <typename Group, int kCount>
void EncodeGroups(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b) {
    Group group;
    group.Encode(src + b * kCount);
    StoreBlock(group, dst, b);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_GROUPED_H_
