// The elements of files' blocks one at a time, for host and devices: what packs
// them (pack.h) and gathers them (embedding) reads. kernels/quant/ says what
// the bits mean; this must give the same values, which a test holds it to.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_BLOCKS_H_
#define INLAY_KERNELS_GEMM_QUANTISED_BLOCKS_H_

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/gemm/quantised/layout.h"
#include "kernels/quant/bnb_fp4/bnb_fp4.h"
#include "kernels/quant/iq_grids.h"
#include "memory/dtype.h"

namespace inlay {

// value = scale * level(code) + min, levels as QuantForm has them.
struct QuantScale {
  float scale;
  float min;
};

// The codewords of formats that have some, levels one after another; passed to
// devices by value.
struct QuantGrid {
  int8_t levels[2048 * 8];
};
QuantGrid QuantGridOf(DType dtype);

namespace quant_blocks {

INLAY_HOST_DEVICE inline float Half(const uint8_t* p) {
  const auto bits = static_cast<uint16_t>(p[0] | p[1] << 8);
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  return F16ToF32(bits);
#endif
}
INLAY_HOST_DEVICE inline uint32_t Word(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}
INLAY_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
INLAY_HOST_DEVICE inline float Float(const uint8_t* p) {
  return FloatOfBits(Word(p));
}
// Half of a number without sign: e4m3, whose 0x7f is 0.
INLAY_HOST_DEVICE inline float HalfOfUE4M3(int bits) {
  bits &= 0x7f;
  if (bits == 0x7f) return 0.0f;
  const int exponent = bits >> 3;
  const int mantissa = bits & 7;
  return exponent == 0
             ? static_cast<float>(mantissa) * 0x1p-10f
             : static_cast<float>(mantissa + 8) *
                   FloatOfBits(static_cast<uint32_t>(exponent + 127 - 11)
                               << 23);
}
INLAY_HOST_DEVICE inline float HalfOfE8M0(uint32_t bits) {
  if (bits == 255) return FloatOfBits(0x7fc00000u);
  return FloatOfBits(bits < 2 ? 0x200000u << bits : (bits - 1u) << 23);
}
// Element i of codes as kernels/quant/bits.h arranges them.
template <int kBits, int kRun>
INLAY_HOST_DEVICE int Bits(const uint8_t* packed, int i) {
  const int run = i / kRun;
  constexpr int kRunsOfByte = 8 / kBits;
  return packed[run / kRunsOfByte * kRun + i % kRun] >>
             kBits * (run % kRunsOfByte) &
         ((1 << kBits) - 1);
}
INLAY_HOST_DEVICE inline int Parity7(uint32_t bits) {
  bits &= 127;
  bits ^= bits >> 4;
  return static_cast<int>(0x6996u >> (bits & 15) & 1);
}
// Whether element i of 8 is negative, of 7 signs.
INLAY_HOST_DEVICE inline int SignOf7(uint32_t signs, int i) {
  return i == 7 ? Parity7(signs) : static_cast<int>(signs >> i & 1);
}
INLAY_HOST_DEVICE inline QuantScale KScale(const uint8_t* block, int j,
                                           int middle) {
  const uint8_t* sub = block + 4;
  const int scale =
      j < 4 ? sub[j] & 63 : (sub[4 + j] & 15) | sub[j - 4] >> 6 << 4;
  const int min = j < 4 ? sub[4 + j] & 63 : sub[4 + j] >> 4 | sub[j] >> 6 << 4;
  const float s = Half(block) * static_cast<float>(scale);
  return {s, s * static_cast<float>(middle) -
                 Half(block + 2) * static_cast<float>(min)};
}
INLAY_HOST_DEVICE inline int Iq2Code(const int8_t* level, int negative) {
  return (*level == 8 ? 0 : *level == 25 ? 1 : 2) + 3 * negative;
}
INLAY_HOST_DEVICE inline int Iq1Code(const int8_t* level, int down) {
  return (*level + 1) * 2 + 1 - down;
}

}  // namespace quant_blocks

// Of the group that element i of the block is in.
INLAY_HOST_DEVICE inline QuantScale QuantScaleOf(DType dtype, const uint8_t* b,
                                                 int i) {
  namespace q = quant_blocks;
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return {q::Half(b), 0.0f};
    case DType::kQ4_1: {
      const float scale = q::Half(b);
      return {scale, 8.0f * scale + q::Half(b + 2)};
    }
    case DType::kQ5_1: {
      const float scale = q::Half(b);
      return {scale, 32.0f * scale + q::Half(b + 2)};
    }
    case DType::kQ2_K: {
      const int sub = b[i / 16];
      const float scale = q::Half(b + 80) * static_cast<float>(sub & 15);
      return {scale,
              8.0f * scale - q::Half(b + 82) * static_cast<float>(sub >> 4)};
    }
    case DType::kQ3_K: {
      const int j = i / 16;
      const int sub = q::Bits<4, 8>(b + 96, j) | q::Bits<2, 4>(b + 104, j) << 4;
      return {q::Half(b + 108) * static_cast<float>(sub - 32), 0.0f};
    }
    case DType::kQ4_K:
      return q::KScale(b, i / 32, 8);
    case DType::kQ5_K:
      return q::KScale(b, i / 32, 32);
    case DType::kQ6_K:
      return {q::Half(b + 208) *
                  static_cast<float>(static_cast<int8_t>(b[192 + i / 16])),
              0.0f};
    case DType::kIQ4_XS: {
      const int j = i / 32;
      const int sub = q::Bits<4, 1>(b + 4, j) | q::Bits<2, 1>(b + 2, j) << 4;
      return {q::Half(b) * static_cast<float>(sub - 32), 0.0f};
    }
    case DType::kMXFP4:
      return {q::HalfOfE8M0(b[0]), 0.0f};
    case DType::kNVFP4:
      return {q::HalfOfUE4M3(b[i / 16]), 0.0f};
    case DType::kNVFP4_F32:
      return {q::Float(b) * q::HalfOfUE4M3(b[4 + i / 16]), 0.0f};
    case DType::kTQ1_0:
      return {q::Half(b + 52), 0.0f};
    case DType::kTQ2_0:
      return {q::Half(b + 64), 0.0f};
    case DType::kU4_G32:
    case DType::kU4_G128: {
      const float scale = q::Float(b);
      return {scale, 8.0f * scale + q::Float(b + 4)};
    }
    case DType::kI8_G32:
    case DType::kI8_G128:
      return {q::Float(b), q::Float(b + 4)};
    case DType::kF8_G32:
    case DType::kF8_G128:
    case DType::kNF4:
      return {q::Float(b), 0.0f};
    case DType::kBNB_FP4:
      return {q::Float(b) * (1.0f / kBnbFp4Unit), 0.0f};
    default:
      break;
  }
  // The formats of codewords: odd multiples of a fraction of the scale.
  int sub = 0;
  float scale = q::Half(b);
  float unit = 0.125f;
  switch (dtype) {
    case DType::kIQ2_XXS:
      sub = b[2 + i / 32 * 8 + 7] >> 4;
      break;
    case DType::kIQ2_XS:
      sub = q::Bits<4, 1>(b + 66, i / 16);
      break;
    case DType::kIQ2_S:
      sub = q::Bits<4, 1>(b + 74, i / 16);
      break;
    case DType::kIQ3_XXS:
      sub = b[66 + i / 32 * 4 + 3] >> 4;
      unit = 0.25f;
      break;
    case DType::kIQ3_S:
      sub = q::Bits<4, 1>(b + 106, i / 32);
      unit = 1.0f;
      break;
    case DType::kIQ1_S:
      sub = b[34 + i / 32 * 2 + 1] >> 4 & 7;
      break;
    default: {  // IQ1_M
      const uint8_t* words = b + 48;
      const int j = i / 16;
      sub = (words[j / 4 * 2] | words[j / 4 * 2 + 1] << 8) >> 3 * (j % 4) & 7;
      const uint8_t bits[2] = {
          static_cast<uint8_t>(words[1] >> 4 | (words[3] & 0xf0)),
          static_cast<uint8_t>(words[5] >> 4 | (words[7] & 0xf0))};
      scale = q::Half(bits);
      break;
    }
  }
  return {scale * static_cast<float>(2 * sub + 1) * unit, 0.0f};
}

// The code of element i; `grid`: QuantGridOf's levels.
INLAY_HOST_DEVICE inline int QuantCodeOf(DType dtype, const uint8_t* b, int i,
                                         const int8_t* grid) {
  namespace q = quant_blocks;
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return q::Bits<4, 16>(b + 2, i);
    case DType::kQ4_1:
      return q::Bits<4, 16>(b + 4, i);
    case DType::kQ5_0:
      return (q::Bits<4, 16>(b + 6, i) | q::Bits<1, 1>(b + 2, i) << 4) + 16;
    case DType::kQ5_1:
      return q::Bits<4, 16>(b + 8, i) | q::Bits<1, 1>(b + 4, i) << 4;
    case DType::kQ8_0:
      return b[2 + i];
    case DType::kQ2_K:
      return q::Bits<2, 32>(b + 16, i);
    case DType::kQ3_K:
      return (q::Bits<2, 32>(b + 32, i) | q::Bits<1, 32>(b, i) << 2) + 4;
    case DType::kQ4_K:
      return q::Bits<4, 32>(b + 16, i);
    case DType::kQ5_K:
      return q::Bits<4, 32>(b + 48, i) | q::Bits<1, 32>(b + 16, i) << 4;
    case DType::kQ6_K:
      return q::Bits<4, 64>(b, i) | q::Bits<2, 32>(b + 128, i) << 4;
    case DType::kIQ4_XS:
      return q::Bits<4, 16>(b + 8, i);
    case DType::kMXFP4:
      return q::Bits<4, 16>(b + 1, i);
    case DType::kNVFP4:
      return q::Bits<4, 8>(b + 4, i);
    case DType::kNVFP4_F32:
      return q::Bits<4, 8>(b + 8, i);
    case DType::kTQ1_0: {
      const int byte = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
      const int digit = i < 160   ? i / 32
                        : i < 240 ? (i - 160) / 16
                                  : (i - 240) / 4;
      int rest = b[byte];
      for (int d = 0; d < digit; ++d) rest = rest * 3 & 255;
      return (rest * 3 >> 8) + 7;
    }
    case DType::kTQ2_0:
      return q::Bits<2, 32>(b, i) + 7;
    case DType::kU4_G32:
    case DType::kU4_G128:
      return q::Bits<4, 16>(b + 8, i);
    case DType::kI8_G32:
    case DType::kI8_G128:
      return b[8 + i];
    case DType::kF8_G32:
    case DType::kF8_G128:
      return b[4 + i];
    case DType::kNF4:
    case DType::kBNB_FP4:
      return q::Bits<4, 16>(b + 4, i);
    case DType::kIQ2_XXS: {
      const uint8_t* sub = b + 2 + i / 32 * 8;
      const int g = i % 32 / 8;
      return q::Iq2Code(grid + sub[g] * 8 + i % 8,
                        q::SignOf7(q::Word(sub + 4) >> 7 * g, i % 8));
    }
    case DType::kIQ2_XS: {
      const uint8_t* word = b + 2 + i / 8 * 2;
      const int index = word[0] | (word[1] & 1) << 8;
      return q::Iq2Code(grid + index * 8 + i % 8,
                        q::SignOf7(static_cast<uint32_t>(word[1]) >> 1, i % 8));
    }
    case DType::kIQ2_S: {
      const int index = b[2 + i / 8] | q::Bits<2, 1>(b + 66, i / 8) << 8;
      return q::Iq2Code(grid + index * 8 + i % 8, b[34 + i / 8] >> i % 8 & 1);
    }
    case DType::kIQ3_XXS: {
      const int level = grid[b[2 + i / 4] * 4 + i % 4];
      const uint32_t word = q::Word(b + 66 + i / 32 * 4);
      return (level == 62 ? 7 : (level - 4) / 8) +
             8 * q::SignOf7(word >> 7 * (i % 32 / 8), i % 8);
    }
    case DType::kIQ3_S: {
      const int index = b[2 + i / 4] | q::Bits<1, 1>(b + 66, i / 4) << 8;
      return (grid[index * 4 + i % 4] - 1) / 2 +
             8 * (b[74 + i / 8] >> i % 8 & 1);
    }
    case DType::kIQ1_S: {
      const uint8_t* word = b + 34 + i / 32 * 2;
      const int high = (word[0] | word[1] << 8) >> 3 * (i % 32 / 8) & 7;
      return q::Iq1Code(grid + (b[2 + i / 8] | high << 8) * 8 + i % 8,
                        word[1] >> 7);
    }
    default: {  // IQ1_M
      const int high = q::Bits<4, 1>(b + 32, i / 8);
      return q::Iq1Code(grid + (b[i / 8] | (high & 7) << 8) * 8 + i % 8,
                        high >> 3);
    }
  }
}

INLAY_HOST_DEVICE inline float QuantE4M3(int bits) {
  if ((bits & 0x7f) == 0x7f) return quant_blocks::FloatOfBits(0x7fc00000u);
  const float magnitude = 2.0f * quant_blocks::HalfOfUE4M3(bits);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

INLAY_HOST_DEVICE inline float QuantLevel(const QuantForm& form, int code) {
  switch (form.codes) {
    case QuantCodes::kLinear4:
      return static_cast<float>(code - 8);
    case QuantCodes::kLinear6:
      return static_cast<float>(code - 32);
    case QuantCodes::kTable4:
      return form.levels[code];
    case QuantCodes::kInt8:
      return static_cast<float>(static_cast<int8_t>(code));
    default:
      return QuantE4M3(code);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_BLOCKS_H_
