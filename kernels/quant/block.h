// What the codecs share: blocks at any address, and rounding.
#ifndef INLAY_KERNELS_QUANT_BLOCK_H_
#define INLAY_KERNELS_QUANT_BLOCK_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace inlay {

// Block `i` of those at `src`, which may be unaligned.
template <typename Block>
Block LoadBlock(const std::byte* src, int64_t i) {
  Block block;
  std::memcpy(&block, src + i * static_cast<int64_t>(sizeof(Block)),
              sizeof(Block));
  return block;
}

template <typename Block>
void StoreBlock(const Block& block, std::byte* dst, int64_t i) {
  std::memcpy(dst + i * static_cast<int64_t>(sizeof(Block)), &block,
              sizeof(Block));
}

// The value of largest magnitude with its sign; of equal ones the first. NaN
// counts as nothing.
inline float Extreme(const float* values, int count) {
  float extreme = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
  }
  return extreme;
}

struct Range {
  float least;
  float most;
};

// NaN counts as nothing; of no numbers: zeros.
inline Range RangeOf(const float* values, int count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Range range = {kInfinity, -kInfinity};
  for (int i = 0; i < count; ++i) {
    if (values[i] < range.least) range.least = values[i];
    if (values[i] > range.most) range.most = values[i];
  }
  return range.least <= range.most ? range : Range{0.0f, 0.0f};
}

// 1 / scale; of a scale with no finite inverse: 0, so that all codes are those
// of zero.
inline float InverseScale(float scale) {
  const float inverse = 1.0f / scale;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// The integer in [least, most] nearest to `value`, halves away from zero; of
// NaN: least.
inline int RoundCode(float value, int least, int most) {
  if (!(value > static_cast<float>(least))) return least;
  if (value >= static_cast<float>(most)) return most;
  const int whole = static_cast<int>(value);
  const float rest = value - static_cast<float>(whole);  // exact
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_BLOCK_H_
