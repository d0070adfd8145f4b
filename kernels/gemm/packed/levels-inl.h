// The formats of few bits, whose elements come as codewords, for
// the rows cpu_packed*: inside the region compiled for AVX2 or more. A
// gather costs more than the bytes it saves, so codewords are taken apart when
// weights are packed: an element becomes the 2 to 4 bits that tell its levels
// apart. Packed, iq2 takes 3.3 to 3.6 bits an element, iq3 4.3, iq1 3.3 to 3.6,
// ternary ones 2.3.
//
// value = (scale / divisor) * s[j] * level, levels few and known.
#ifndef INLAY_KERNELS_GEMM_PACKED_LEVELS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_LEVELS_INL_H_

#include "kernels/gemm/packed/formats-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

inline constexpr uint16_t kOne = 0x3c00;  // f16

// kTable: level + middle of each code, ascending; 16 entries.
template <DType dtype, class CodesT, const int8_t* kTable, int most, int middle,
          int halves, int divisor>
struct Levels : SuperScaled<dtype, CodesT, most, middle, halves> {
  using Base = SuperScaled<dtype, CodesT, most, middle, halves>;

  // `unscaled`: the block with a scale of one. subs: s[j].
  template <typename Block>
  static void PutLevels(uint16_t scale, const Block& unscaled,
                        const int8_t* subs, int row, uint8_t* header,
                        uint8_t* steps) {
    constexpr int kSub = kStep / halves;
    float values[kSuperBlock];
    FindBlockCodec(dtype)->decode(reinterpret_cast<const std::byte*>(&unscaled),
                                  1, values);
    uint8_t codes[kSuperBlock];
    for (int i = 0; i < kSuperBlock; ++i) {
      const float level = values[i] * static_cast<float>(divisor) /
                          static_cast<float>(subs[i / kSub]);
      const int wanted = static_cast<int>(std::lround(level)) + middle;
      int code = 0;
      while (code < 15 && kTable[code] != wanted) ++code;
      codes[i] = static_cast<uint8_t>(code);
    }
    Base::Put(scale, subs, codes, row, header, steps);
  }

  INLAY_INLINE static __m256 Load(const uint8_t* p) {
    return _mm256_mul_ps(LoadHalves(p), _mm256_set1_ps(1.0f / divisor));
  }
  static constexpr bool LevelsAreCodes() {
    for (int i = 0; i <= most && i < 16; ++i) {
      if (kTable[i] != i) return false;
    }
    return most < 16;
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    if constexpr (LevelsAreCodes()) return CodesTile<V, CodesT, t>(p);
    return LevelsTile<V, CodesT, t>(kTable, p);
  }
};

// Of tq2_0 no encoder writes the fourth, 2, that its codes can say.
inline constexpr int8_t kTernary[16] = {0, 1, 2, 3};
// 8 (code - 1) +- 1, and 9.
inline constexpr int8_t kIq1Levels[16] = {0, 2, 8, 10, 16, 18};
// Magnitudes 8, 25, 43, and 43.
inline constexpr int8_t kIq2Levels[16] = {0, 18, 35, 51, 68, 86};
// Magnitudes 4, 12, 20, 28, 36, 44, 52, 62, and 62.
inline constexpr int8_t kIq3XxsLevels[16] = {0,  10, 18, 26, 34, 42,  50,  58,
                                             66, 74, 82, 90, 98, 106, 114, 124};
// Odd magnitudes to 15, and 15.
inline constexpr int8_t kIq3SLevels[16] = {0,  2,  4,  6,  8,  10, 12, 14,
                                           16, 18, 20, 22, 24, 26, 28, 30};

template <DType dtype, typename Block>
struct Ternary : Levels<dtype, Planes<2, 0>, kTernary, 3, 1, 1, 1> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    static constexpr int8_t kOnes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    auto block = LoadBlock<Block>(src, 0);
    const uint16_t scale = block.scale;
    block.scale = kOne;
    Ternary::PutLevels(scale, block, kOnes, row, header, steps);
  }
};

// s[j] = 2 code + 1 for `count` codes.
inline void OddScales(const uint8_t* codes, int count, int8_t* subs) {
  for (int j = 0; j < count; ++j) {
    subs[j] = static_cast<int8_t>(2 * codes[j] + 1);
  }
}
// The codes in the top 4 bits of words.
inline void TopNibbles(const std::byte* word, size_t stride, uint8_t* codes) {
  for (int j = 0; j < 8; ++j, word += stride) {
    uint32_t bits;
    std::memcpy(&bits, word, sizeof(bits));
    codes[j] = static_cast<uint8_t>(bits >> 28);
  }
}

struct IQ2_XXS
    : Levels<DType::kIQ2_XXS, Planes<2, 1>, kIq2Levels, 86, 43, 1, 8> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    auto block = LoadBlock<IQ2_XXSBlock>(src, 0);
    uint8_t codes[8];
    int8_t subs[8];
    TopNibbles(
        reinterpret_cast<const std::byte*>(block.subs[0].signs_and_scale),
        sizeof(block.subs[0]), codes);
    OddScales(codes, 8, subs);
    const uint16_t scale = block.scale;
    block.scale = kOne;
    PutLevels(scale, block, subs, row, header, steps);
  }
};

template <DType dtype, typename Block>
struct IQ2Of16 : Levels<dtype, Planes<2, 1>, kIq2Levels, 86, 43, 2, 8> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    auto block = LoadBlock<Block>(src, 0);
    uint8_t codes[16];
    int8_t subs[16];
    UnpackBits<4, 1, 16>(block.scales, codes);
    OddScales(codes, 16, subs);
    const uint16_t scale = block.scale;
    block.scale = kOne;
    IQ2Of16::PutLevels(scale, block, subs, row, header, steps);
  }
};

struct IQ3_XXS
    : Levels<DType::kIQ3_XXS, Planes<4, 0>, kIq3XxsLevels, 124, 62, 1, 4> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    auto block = LoadBlock<IQ3_XXSBlock>(src, 0);
    uint8_t codes[8];
    int8_t subs[8];
    TopNibbles(reinterpret_cast<const std::byte*>(block.signs_and_scales),
               sizeof(block.signs_and_scales[0]), codes);
    OddScales(codes, 8, subs);
    const uint16_t scale = block.scale;
    block.scale = kOne;
    PutLevels(scale, block, subs, row, header, steps);
  }
};

struct IQ3_S : Levels<DType::kIQ3_S, Planes<4, 0>, kIq3SLevels, 30, 15, 1, 1> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    auto block = LoadBlock<IQ3_SBlock>(src, 0);
    uint8_t codes[8];
    int8_t subs[8];
    UnpackBits<4, 1, 8>(block.scales, codes);
    OddScales(codes, 8, subs);
    const uint16_t scale = block.scale;
    block.scale = kOne;
    PutLevels(scale, block, subs, row, header, steps);
  }
};

struct IQ1_S : Levels<DType::kIQ1_S, Planes<2, 1>, kIq1Levels, 18, 9, 1, 8> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    auto block = LoadBlock<IQ1_SBlock>(src, 0);
    int8_t subs[8];
    for (int j = 0; j < 8; ++j) {
      subs[j] = static_cast<int8_t>(2 * (block.high[j] >> 12 & 7) + 1);
    }
    const uint16_t scale = block.scale;
    block.scale = kOne;
    PutLevels(scale, block, subs, row, header, steps);
  }
};

// The scale lies in the top bits of four words.
struct IQ1_M : Levels<DType::kIQ1_M, Planes<2, 1>, kIq1Levels, 18, 9, 2, 8> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    auto block = LoadBlock<IQ1_MBlock>(src, 0);
    int8_t subs[16];
    unsigned scale = 0;
    for (int k = 0; k < 4; ++k) {
      const unsigned word = block.scales[k];
      for (int i = 0; i < 4; ++i) {
        subs[4 * k + i] = static_cast<int8_t>(2 * (word >> 3 * i & 7) + 1);
      }
      scale |= word >> 12 << 4 * k;
      block.scales[k] =
          static_cast<uint16_t>((word & 0xfff) | (kOne >> 4 * k & 15) << 12);
    }
    PutLevels(static_cast<uint16_t>(scale), block, subs, row, header, steps);
  }
};

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_LEVELS_INL_H_
