// The block formats of weights a second time, from their published definitions:
// which bits of a block are which number, and what the numbers mean. Nothing
// here is of kernels/quant but the codebooks of iq1, iq2 and iq3, which a test
// holds to the checksums of ggml's.
//
// Sources: ggml's dequantize_row_<format> (ggml-quants.c) and its blocks
// (ggml-common.h); OCP Microscaling Formats 1.0; QLoRA, appendix E;
// bitsandbytes' get_4bit_type; of our own formats, kernels/quant/<format>.
#ifndef INLAY_TESTS_SUPPORT_QUANT_LAYOUTS_H_
#define INLAY_TESTS_SUPPORT_QUANT_LAYOUTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "kernels/quant/iq_grids.h"
#include "memory/dtype.h"

namespace inlay::testing {

// Where a number's bits are in the block, from the low one up.
using BlockBits = std::vector<int>;

inline BlockBits BitsAt(int byte, int shift, int count) {
  BlockBits bits;
  for (int i = 0; i < count; ++i) bits.push_back(byte * 8 + shift + i);
  return bits;
}
inline BlockBits operator+(BlockBits low, const BlockBits& high) {
  low.insert(low.end(), high.begin(), high.end());
  return low;
}

// A number that stands for one element or several.
struct CodeField {
  BlockBits bits;
  std::vector<int> elements;
};

enum class ScaleType { kOne, kF16, kF32, kE8M0 };

// value = ((scale * sub) * level) + min * sub_min, every product and sum
// rounded to float32.
struct BlockLayout {
  int elements = 0;
  int bytes = 0;
  ScaleType type = ScaleType::kF16;
  BlockBits scale, min;
  std::vector<BlockBits> subs, sub_mins;  // of equally many elements each
  std::vector<CodeField> codes;
  std::vector<CodeField> signs;  // or shifts
  // The level of the i-th element that the code stands for.
  std::function<double(int code, int i)> level;
  std::function<double(double level, int sign, int i)> with_sign;
  std::function<double(int bits)> sub = [](int) { return 1.0; };
  double min_factor = 1.0;  // -1: is taken away
};

inline double F16Of(uint32_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double value = exponent == 0 ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> 15 != 0 ? -value : value;
}
inline double E4M3Of(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  double value = exponent == 0 ? std::ldexp(mantissa, -9)
                               : std::ldexp(8 + mantissa, exponent - 10);
  if ((bits & 127) == 127) value = std::numeric_limits<double>::quiet_NaN();
  return (bits & 128) != 0 ? -value : value;
}
inline double UE4M3Of(int bits) {
  return (bits & 127) == 127 ? 0.0 : E4M3Of(bits & 127);
}
inline double E8M0Of(int bits) {
  return bits == 255 ? std::numeric_limits<double>::quiet_NaN()
                     : std::ldexp(1.0, bits - 127);
}
// OCP's, but for the code of -0, which ggml's table of integers has as 0.
inline double E2M1Of(int code) {
  const int exponent = code >> 1 & 3;
  const double value = exponent == 0 ? (code & 1) / 2.0
                                     : std::ldexp(2 + (code & 1), exponent - 2);
  return (code & 8) != 0 && value != 0.0 ? -value : value;
}

inline constexpr double kPublishedIq4[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr double kPublishedNf4[16] = {-1.0,
                                             -0.6961928009986877,
                                             -0.5250730514526367,
                                             -0.39491748809814453,
                                             -0.28444138169288635,
                                             -0.18477343022823334,
                                             -0.09105003625154495,
                                             0.0,
                                             0.07958029955625534,
                                             0.16093020141124725,
                                             0.24611230194568634,
                                             0.33791524171829224,
                                             0.44070982933044434,
                                             0.5626170039176941,
                                             0.7229568362236023,
                                             1.0};
inline constexpr double kPublishedFp4[8] = {0, 0.0625, 8, 12, 4, 6, 2, 3};

namespace quant_layouts {

// kBits bits of each element e of `count`: at `byte` + index(e), up from
// `shift`(e).
template <typename Index, typename Shift>
std::vector<CodeField> Each(int count, int width, int byte, Index index,
                            Shift shift) {
  std::vector<CodeField> fields;
  for (int e = 0; e < count; ++e) {
    fields.push_back({BitsAt(byte + index(e), shift(e), width), {e}});
  }
  return fields;
}
inline void AddHigh(std::vector<CodeField>* fields,
                    const std::vector<CodeField>& high) {
  for (size_t i = 0; i < fields->size(); ++i) {
    (*fields)[i].bits = (*fields)[i].bits + high[i].bits;
  }
}
// The low nibbles of a run's bytes, then the high ones.
inline std::vector<CodeField> Nibbles(int count, int byte, int run) {
  return Each(
      count, 4, byte, [=](int e) { return e / (2 * run) * run + e % run; },
      [=](int e) { return e / run % 2 * 4; });
}
// ggml's two bits of 128 elements in 32 bytes.
inline std::vector<CodeField> Pairs(int byte) {
  return Each(
      256, 2, byte, [](int e) { return e / 128 * 32 + e % 32; },
      [](int e) { return e % 128 / 32 * 2; });
}
// A bit of every 32 elements in 32 bytes.
inline std::vector<CodeField> BitPlanes(int byte) {
  return Each(
      256, 1, byte, [](int e) { return e % 32; }, [](int e) { return e / 32; });
}
inline std::vector<CodeField> ByteCodes(int count, int byte) {
  return Each(
      count, 8, byte, [](int e) { return e; }, [](int) { return 0; });
}
inline std::vector<int> Range(int first, int count) {
  std::vector<int> elements;
  for (int i = 0; i < count; ++i) elements.push_back(first + i);
  return elements;
}
inline double Signed(double level, int signs, int i) {
  return (signs >> i & 1) != 0 ? -level : level;
}
// 7 signs; the eighth makes the number of negative ones even.
inline double EvenSigned(double level, int signs, int i) {
  bool negative = (signs >> i & 1) != 0;
  if (i == 7) {
    for (int k = 0; k < 7; ++k) negative ^= (signs >> k & 1) != 0;
  }
  return negative ? -level : level;
}
inline double Shifted(double level, int down, int) {
  return level + (down != 0 ? -0.125 : 0.125);
}
template <typename Grid>
auto Codeword(const Grid& grid) {
  return [&grid](int code, int i) {
    const auto& codeword = grid.codewords[static_cast<size_t>(code)];
    return static_cast<double>(codeword[static_cast<size_t>(i)]);
  };
}
inline std::function<double(int, int)> Less(int middle) {
  return [middle](int code, int) { return double(code - middle); };
}
inline std::function<double(int)> Minus(int middle) {
  return [middle](int bits) { return double(bits - middle); };
}
inline std::function<double(int)> OddOver(int divisor) {
  return [divisor](int bits) { return (2.0 * bits + 1.0) / divisor; };
}

inline void K45(BlockLayout* layout) {
  layout->scale = BitsAt(0, 0, 16);
  layout->min = BitsAt(2, 0, 16);
  layout->min_factor = -1.0;
  layout->level = Less(0);
  layout->sub = Minus(0);
  for (int j = 0; j < 8; ++j) {  // get_scale_min_k4
    const int i = 4 + j;         // of byte 4 on
    layout->subs.push_back(j < 4 ? BitsAt(i, 0, 6)
                                 : BitsAt(i + 4, 0, 4) + BitsAt(i - 4, 6, 2));
    layout->sub_mins.push_back(j < 4 ? BitsAt(i + 4, 0, 6)
                                     : BitsAt(i + 4, 4, 4) + BitsAt(i, 6, 2));
  }
}

// Codes of 8 or 4 elements, `high` bits above 8 of them apart.
template <typename High>
void Codewords(BlockLayout* layout, int size, int byte, int width, High high) {
  for (int g = 0; g < 256 / size; ++g) {
    layout->codes.push_back(
        {BitsAt(byte + g * (width > 8 ? 2 : 1), 0, width) + high(g),
         Range(g * size, size)});
  }
}
inline BlockBits NoBits(int) { return {}; }

inline void Ours(BlockLayout* layout, bool has_min) {
  layout->type = ScaleType::kF32;
  layout->scale = BitsAt(0, 0, 32);
  if (has_min) layout->min = BitsAt(4, 0, 32);
}

}  // namespace quant_layouts

inline BlockLayout LayoutOf(DType dtype) {
  using namespace quant_layouts;  // NOLINT
  const FormatInfo& info = GetFormatInfo(dtype);
  BlockLayout l;
  l.elements = info.block_elements;
  l.bytes = info.block_bytes;
  l.scale = BitsAt(0, 0, 16);
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      l.codes = Nibbles(32, 2, 16);
      l.level = Less(8);
      break;
    case DType::kQ4_1:
      l.min = BitsAt(2, 0, 16);
      l.codes = Nibbles(32, 4, 16);
      l.level = Less(0);
      break;
    case DType::kQ5_0:
    case DType::kQ5_1: {
      const int at = dtype == DType::kQ5_0 ? 2 : 4;
      if (at == 4) l.min = BitsAt(2, 0, 16);
      l.codes = Nibbles(32, at + 4, 16);
      for (int e = 0; e < 32; ++e) {
        auto& bits = l.codes[static_cast<size_t>(e)].bits;
        bits = bits + BitsAt(at, e, 1);
      }
      l.level = Less(at == 2 ? 16 : 0);
      break;
    }
    case DType::kQ8_0:
      l.codes = ByteCodes(32, 2);
      break;
    case DType::kQ2_K:
      l.codes = Pairs(16);
      l.level = Less(0);
      l.scale = BitsAt(80, 0, 16);
      l.min = BitsAt(82, 0, 16);
      l.min_factor = -1.0;
      l.sub = Minus(0);
      for (int j = 0; j < 16; ++j) {
        l.subs.push_back(BitsAt(j, 0, 4));
        l.sub_mins.push_back(BitsAt(j, 4, 4));
      }
      break;
    case DType::kQ3_K:
      l.codes = Pairs(32);
      AddHigh(&l.codes, BitPlanes(0));
      l.level = Less(4);
      l.scale = BitsAt(108, 0, 16);
      l.sub = Minus(32);
      for (int j = 0; j < 16; ++j) {
        l.subs.push_back(BitsAt(96 + j % 8, j / 8 * 4, 4) +
                         BitsAt(104 + j % 4, j / 4 * 2, 2));
      }
      break;
    case DType::kQ4_K:
      K45(&l);
      l.codes = Nibbles(256, 16, 32);
      break;
    case DType::kQ5_K:
      K45(&l);
      l.codes = Nibbles(256, 48, 32);
      AddHigh(&l.codes, BitPlanes(16));
      break;
    case DType::kQ6_K:
      l.codes = Nibbles(256, 0, 64);
      AddHigh(&l.codes, Pairs(128));
      l.level = Less(32);
      l.scale = BitsAt(208, 0, 16);
      l.sub = [](int bits) { return bits < 128 ? bits : bits - 256; };
      for (int j = 0; j < 16; ++j) l.subs.push_back(BitsAt(192 + j, 0, 8));
      break;
    case DType::kIQ4_XS:
      l.codes = Nibbles(256, 8, 16);
      l.sub = Minus(32);
      for (int j = 0; j < 8; ++j) {
        l.subs.push_back(BitsAt(4, 4 * j, 4) + BitsAt(2, 2 * j, 2));
      }
      break;
    case DType::kIQ2_XXS:
    case DType::kIQ3_XXS: {
      const bool is_2 = dtype == DType::kIQ2_XXS;
      if (is_2) {
        for (int g = 0; g < 32; ++g) {
          l.codes.push_back(
              {BitsAt(2 + g / 4 * 8 + g % 4, 0, 8), Range(8 * g, 8)});
        }
        l.level = Codeword(kIq2XxsGrid);
      } else {
        Codewords(&l, 4, 2, 8, NoBits);
        l.level = Codeword(kIq3XxsGrid);
      }
      l.with_sign = EvenSigned;
      l.sub = OddOver(is_2 ? 8 : 4);
      for (int j = 0; j < 8; ++j) {
        const int word = is_2 ? 2 + 8 * j + 4 : 66 + 4 * j;
        l.subs.push_back(BitsAt(word, 28, 4));
        for (int g = 0; g < 4; ++g) {
          l.signs.push_back({BitsAt(word, 7 * g, 7), Range(32 * j + 8 * g, 8)});
        }
      }
      break;
    }
    case DType::kIQ2_XS:
      Codewords(&l, 8, 2, 9, NoBits);
      l.level = Codeword(kIq2XsGrid);
      l.with_sign = EvenSigned;
      for (int g = 0; g < 32; ++g) {
        l.signs.push_back({BitsAt(2 + 2 * g, 9, 7), Range(8 * g, 8)});
      }
      l.sub = OddOver(8);
      for (int j = 0; j < 16; ++j) l.subs.push_back(BitsAt(66, 4 * j, 4));
      break;
    case DType::kIQ2_S:
      Codewords(&l, 8, 2, 8, [](int g) { return BitsAt(66, 2 * g, 2); });
      l.level = Codeword(kIq2SGrid);
      l.with_sign = Signed;
      for (int g = 0; g < 32; ++g) {
        l.signs.push_back({BitsAt(34 + g, 0, 8), Range(8 * g, 8)});
      }
      l.sub = OddOver(8);
      for (int j = 0; j < 16; ++j) l.subs.push_back(BitsAt(74, 4 * j, 4));
      break;
    case DType::kIQ3_S:
      Codewords(&l, 4, 2, 8, [](int g) { return BitsAt(66, g, 1); });
      l.level = Codeword(kIq3SGrid);
      l.with_sign = Signed;
      for (int g = 0; g < 32; ++g) {
        l.signs.push_back({BitsAt(74 + g, 0, 8), Range(8 * g, 8)});
      }
      l.sub = OddOver(1);
      for (int j = 0; j < 8; ++j) l.subs.push_back(BitsAt(106, 4 * j, 4));
      break;
    case DType::kIQ1_S:
      Codewords(&l, 8, 2, 8,
                [](int g) { return BitsAt(34 + g / 4 * 2, 3 * (g % 4), 3); });
      l.level = Codeword(kIq1Grid);
      l.with_sign = Shifted;
      l.sub = OddOver(1);
      for (int j = 0; j < 8; ++j) {
        l.subs.push_back(BitsAt(34 + 2 * j, 12, 3));
        l.signs.push_back({BitsAt(34 + 2 * j, 15, 1), Range(32 * j, 32)});
      }
      break;
    case DType::kIQ1_M:
      Codewords(&l, 8, 0, 8, [](int g) { return BitsAt(32, 4 * g, 3); });
      l.level = Codeword(kIq1Grid);
      l.with_sign = Shifted;
      l.sub = OddOver(1);
      for (int g = 0; g < 32; ++g) {
        l.signs.push_back({BitsAt(32, 4 * g + 3, 1), Range(8 * g, 8)});
      }
      for (int j = 0; j < 16; ++j) {
        l.subs.push_back(BitsAt(48 + j / 4 * 2, 3 * (j % 4), 3));
      }
      l.scale = BitsAt(48, 12, 4) + BitsAt(50, 12, 4) + BitsAt(52, 12, 4) +
                BitsAt(54, 12, 4);
      break;
    case DType::kMXFP4:
      l.type = ScaleType::kE8M0;
      l.scale = BitsAt(0, 0, 8);
      l.codes = Nibbles(32, 1, 16);
      break;
    case DType::kNVFP4:
    case DType::kNVFP4_F32: {
      const int at = dtype == DType::kNVFP4 ? 0 : 4;
      l.type = at == 0 ? ScaleType::kOne : ScaleType::kF32;
      l.scale = BitsAt(0, 0, 8 * at);
      l.codes = Nibbles(64, at + 4, 8);
      // In float32 the tensor's factor meets half the scale, and twice e2m1.
      l.sub = [](int bits) { return UE4M3Of(bits) / 2.0; };
      for (int j = 0; j < 4; ++j) l.subs.push_back(BitsAt(at + j, 0, 8));
      break;
    }
    case DType::kTQ1_0:
      for (int byte = 0; byte < 52; ++byte) {
        const int first = byte < 32   ? byte
                          : byte < 48 ? 128 + byte
                                      : 192 + byte;
        const int step = byte < 32 ? 32 : byte < 48 ? 16 : 4;
        std::vector<int> elements;
        for (int n = 0; n < (byte < 48 ? 5 : 4); ++n) {
          elements.push_back(first + n * step);
        }
        l.codes.push_back({BitsAt(byte, 0, 8), elements});
      }
      // Digit i of the fraction code / 256 to base 3.
      l.level = [](int code, int i) {
        const double shifted = code / 256.0 * std::pow(3.0, i);
        return std::floor(3.0 * (shifted - std::floor(shifted))) - 1.0;
      };
      l.scale = BitsAt(52, 0, 16);
      break;
    case DType::kTQ2_0:
      l.codes = Pairs(0);
      l.level = Less(1);
      l.scale = BitsAt(64, 0, 16);
      break;
    case DType::kU4_G32:
    case DType::kU4_G128:
      Ours(&l, true);
      l.codes = Nibbles(l.elements, 8, 16);
      l.level = Less(0);
      break;
    case DType::kI8_G32:
    case DType::kI8_G128:
      Ours(&l, true);
      l.codes = ByteCodes(l.elements, 8);
      break;
    case DType::kF8_G32:
    case DType::kF8_G128:
      Ours(&l, false);
      l.codes = ByteCodes(l.elements, 4);
      l.level = [](int code, int) { return E4M3Of(code); };
      break;
    case DType::kNF4:
    case DType::kBNB_FP4:
      Ours(&l, false);
      l.codes = Nibbles(64, 4, 16);
      break;
    default:
      return {};
  }
  switch (dtype) {
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      l.level = [](int code, int) { return kPublishedIq4[code]; };
      break;
    case DType::kQ8_0:
    case DType::kI8_G32:
    case DType::kI8_G128:
      l.level = [](int code, int) { return double(code ^ 128) - 128.0; };
      break;
    case DType::kMXFP4:
      l.level = [](int code, int) { return E2M1Of(code); };
      break;
    case DType::kNVFP4:
    case DType::kNVFP4_F32:
      l.level = [](int code, int) { return 2.0 * E2M1Of(code); };
      break;
    case DType::kNF4:
      l.level = [](int code, int) {
        return double{static_cast<float>(kPublishedNf4[code])};
      };
      break;
    case DType::kBNB_FP4:
      l.level = [](int code, int) {
        const auto level = static_cast<float>(kPublishedFp4[code & 7] / 12.0);
        return double{code < 8 ? level : -level};
      };
      break;
    default:
      break;
  }
  return l;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_QUANT_LAYOUTS_H_
