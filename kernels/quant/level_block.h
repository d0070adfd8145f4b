// What nf4 and bnb_fp4 share: 64 elements with a float32 scale and 4-bit codes
// of 16 given levels. value = scale * levels[code], in float32.
//
//   byte 0         f32 scale
//   byte 4+16r+i   low nibble: code of element 32 r + i; high nibble: of
//                  element 32 r + 16 + i (r < 2, i < 16)
//
// Levels reach from -1 to 1. They are no integers and have no exact sums, so
// that fast kernels round them to what they multiply (RoundLevels).
#ifndef INLAY_KERNELS_QUANT_LEVEL_BLOCK_H_
#define INLAY_KERNELS_QUANT_LEVEL_BLOCK_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"

namespace inlay {

inline constexpr int kLevelBlockElements = 64;

using BlockLevels = float[16];

struct LevelBlock {
  float scale;
  uint8_t codes[kLevelBlockElements / 2];
};
static_assert(sizeof(LevelBlock) == 36);

// levels[i] * unit as the nearest integers, which 8 bits hold.
constexpr std::array<int8_t, 16> RoundLevels(const BlockLevels& levels,
                                             int unit) {
  std::array<int8_t, 16> rounded = {};
  for (size_t i = 0; i < 16; ++i) {
    const float value = levels[i] * static_cast<float>(unit);
    rounded[i] =
        static_cast<int8_t>(value < 0.0f ? value - 0.5f : value + 0.5f);
  }
  return rounded;
}

template <const BlockLevels& kLevels>
void DecodeLevels(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += kLevelBlockElements) {
    const auto block = LoadBlock<LevelBlock>(src, b);
    uint8_t codes[kLevelBlockElements];
    UnpackBits<4, 16, kLevelBlockElements>(block.codes, codes);
    for (int i = 0; i < kLevelBlockElements; ++i) {
      dst[i] = block.scale * kLevels[codes[i]];
    }
  }
}

// The nearest level, of two equally near ones that of the lesser code; of NaN
// the code of zero.
template <const BlockLevels& kLevels>
uint8_t NearestLevelCode(float value) {
  uint8_t best = 0;
  while (kLevels[best] != 0.0f) ++best;
  if (std::isnan(value)) return best;
  for (uint8_t code = 0; code < 16; ++code) {
    const float off = std::abs(value - kLevels[code]);
    const float least = std::abs(value - kLevels[best]);
    if (off < least) best = code;
  }
  return best;
}

// The value of largest magnitude gets level 1 or -1.
template <const BlockLevels& kLevels>
void EncodeLevels(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += kLevelBlockElements) {
    LevelBlock block;
    block.scale = std::abs(Extreme(src, kLevelBlockElements));
    const float inverse = InverseScale(block.scale);
    uint8_t codes[kLevelBlockElements];
    for (int i = 0; i < kLevelBlockElements; ++i) {
      codes[i] = NearestLevelCode<kLevels>(src[i] * inverse);
    }
    PackBits<4, 16, kLevelBlockElements>(codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_LEVEL_BLOCK_H_
