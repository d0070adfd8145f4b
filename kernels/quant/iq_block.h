// What the blocks of the iq2 and iq3 formats share: 256 elements, codewords of
// kDim magnitudes, a sign for every element, sub-blocks of kSub elements with
// scales. value = scale * (2 s[j] + 1) / kDivisor * magnitude * sign in
// sub-block j. Formats unpack their bits into this struct and pack them from
// there.
#ifndef INLAY_KERNELS_QUANT_IQ_BLOCK_H_
#define INLAY_KERNELS_QUANT_IQ_BLOCK_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/iq_codeword.h"
#include "kernels/quant/iq_grids.h"
#include "memory/dtype.h"

namespace inlay {

// iq2_xxs, iq2_xs and iq3_xxs keep 7 of 8 signs: an even number is negative.
inline uint8_t SignsFrom7(uint32_t signs) {
  signs &= 127;
  return static_cast<uint8_t>(signs | (std::popcount(signs) & 1u) << 7);
}

template <int kSub, int kDim, int kDivisor>
struct IqBlock {
  static constexpr int kSubs = 256 / kSub;
  static constexpr int kGroupsOfSub = kSub / kDim;
  uint16_t scale;         // f16
  uint8_t scales[kSubs];  // 0 to 15
  uint16_t indices[256 / kDim];
  uint8_t signs[32];  // bit i of byte g: element 8 g + i is negative

  float SubScale(int j) const {
    return F16ToF32(scale) * static_cast<float>(2 * scales[j] + 1) *
           (1.0f / kDivisor);
  }
  float Sign(int element) const {
    return (signs[element / 8] >> (element % 8) & 1) != 0 ? -1.0f : 1.0f;
  }

  template <typename Grid>
  void Decode(const Grid& grid, float* dst) const {
    for (int j = 0; j < kSubs; ++j) {
      const float sub_scale = SubScale(j);
      for (int e = j * kSub; e < (j + 1) * kSub; ++e) {
        const auto& codeword = grid.codewords[indices[e / kDim]];
        dst[e] = sub_scale *
                 static_cast<float>(codeword[static_cast<size_t>(e % kDim)]) *
                 Sign(e);
      }
    }
  }

  template <typename Grid>
  void Encode(const Grid& grid, const float* src, bool even_signs) {
    float x[256];
    TakeSigns(src, even_signs, x);
    float fits[kSubs];
    for (int j = 0; j < kSubs; ++j) fits[j] = FitSub(grid, x + j * kSub, j);
    const float most = *std::max_element(fits, fits + kSubs);
    scale = F32ToF16(most * (kDivisor / 31.0f));
    const float inverse = InverseScale(F16ToF32(scale) / kDivisor);
    Correlation all;
    for (int j = 0; j < kSubs; ++j) {
      scales[j] = static_cast<uint8_t>(
          RoundCode((fits[j] * inverse - 1.0f) / 2.0f, 0, 15));
      const Correlation sub = Assign(grid, x + j * kSub, j, SubScale(j));
      const float factor = static_cast<float>(2 * scales[j] + 1) / kDivisor;
      all.products += sub.products * factor;
      all.squares += sub.squares * factor * factor;
    }
    if (most > 0.0f) scale = F32ToF16(all.Scale());
  }

 private:
  // Magnitudes of src. Where the number of negative signs of 8 must be even
  // and is not, the smallest magnitude becomes negative instead.
  void TakeSigns(const float* src, bool even_signs, float* x) {
    for (int g = 0; g < 32; ++g) {
      unsigned bits = 0;
      int smallest = 8 * g;
      for (int e = 8 * g; e < 8 * g + 8; ++e) {
        x[e] = std::abs(src[e]);
        if (src[e] < 0.0f) bits |= 1u << (e % 8);
        if (x[e] < x[smallest]) smallest = e;
      }
      if (even_signs && std::popcount(bits) % 2 != 0) {
        bits ^= 1u << (smallest % 8);
        x[smallest] = -x[smallest];
      }
      signs[g] = static_cast<uint8_t>(bits);
    }
  }

  // Chooses the codewords of sub-block j at a scale.
  template <typename Grid>
  Correlation Assign(const Grid& grid, const float* x, int j, float at) {
    const float inverse = InverseScale(at);
    Correlation correlation;
    for (int g = 0; g < kGroupsOfSub; ++g) {
      float scaled[kDim];
      for (int i = 0; i < kDim; ++i) scaled[i] = x[g * kDim + i] * inverse;
      const int index = NearestCodeword(grid, scaled).index;
      indices[j * kGroupsOfSub + g] = static_cast<uint16_t>(index);
      for (int i = 0; i < kDim; ++i) {
        correlation.Add(
            x[g * kDim + i],
            grid.codewords[static_cast<size_t>(index)][static_cast<size_t>(i)]);
      }
    }
    return correlation;
  }

  // The best of the scales that least squares finds from several.
  template <typename Grid>
  float FitSub(const Grid& grid, const float* x, int j) {
    const float extreme = std::abs(Extreme(x, kSub));
    const float largest = static_cast<float>(*std::max_element(
        grid.half_codewords.back().begin(), grid.half_codewords.back().end()));
    float best = 0.0f;
    float best_gain = 0.0f;
    if (!std::isfinite(extreme)) return 0.0f;
    for (int k = 0; k < 3; ++k) {
      const float at =
          extreme / largest * (0.7f + 0.15f * static_cast<float>(k));
      const Correlation correlation = Assign(grid, x, j, at);
      if (correlation.Gain() > best_gain && correlation.products > 0.0f) {
        best = correlation.Scale();
        best_gain = correlation.Gain();
      }
    }
    return best;
  }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ_BLOCK_H_
