// 4-bit floats (e2m1) and the scales they go with.
//
//   e2m1   sign, 2 bits of exponent (bias 1), 1 of mantissa: 0, 0.5, 1, 1.5, 2,
//          3, 4, 6 and their negatives
//   e8m0   2^(bits - 127); 255 is NaN
//   ue4m3  OCP e4m3 whose sign is ignored; 0x7f is 0 (as in ggml), not NaN
//
// Source: OCP Microscaling Formats (MX) specification 1.0, sections 5.3 and
// 5.4; for ue4m3 NVIDIA's NVFP4 and ggml (ggml-impl.h, ggml_ue4m3_to_fp32).
#ifndef INLAY_KERNELS_QUANT_FP4_H_
#define INLAY_KERNELS_QUANT_FP4_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "memory/dtype.h"

namespace inlay {

// Twice the value of each code.
inline constexpr int8_t kE2M1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// The nearest code, of two equally near ones the even one; saturates. NaN
// gives a zero.
inline uint8_t F32ToE2M1(float value) {
  const float m = std::abs(value);
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) +
                   (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return static_cast<uint8_t>(code | (value < 0.0f ? 8 : 0));
}

// Half the scale, for doubled codes: 2^(bits - 128), whose least ones are
// subnormal.
inline float HalfE8M0(uint8_t bits) {
  if (bits == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(bits < 2 ? 0x200000u << bits : (bits - 1u) << 23);
}

// Half the scale, for doubled codes.
inline float HalfUE4M3(uint8_t bits) {
  const uint8_t magnitude = bits & 0x7f;
  return magnitude == 0x7f ? 0.0f : 0.5f * F8E4M3ToF32(magnitude);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_FP4_H_
