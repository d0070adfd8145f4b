// What iq1_s and iq1_m share: 256 elements, codewords of 8 from {-1, 0, 1},
// sub-blocks of kSub elements with scales, runs of kRun elements (not more than
// a sub-block) that are all shifted by 1/8 up or down.
// value = scale * (2 s[j] + 1) * (level + shift) in sub-block j. Formats unpack
// their bits into this struct and pack them from there.
#ifndef INLAY_KERNELS_QUANT_IQ1_BLOCK_H_
#define INLAY_KERNELS_QUANT_IQ1_BLOCK_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/iq_codeword.h"
#include "kernels/quant/iq_grids.h"
#include "memory/dtype.h"

namespace inlay {

template <int kSub, int kRun>
struct Iq1Block {
  static constexpr int kSubs = 256 / kSub;
  uint16_t scale;         // f16
  uint8_t scales[kSubs];  // 0 to 7
  uint16_t indices[32];
  uint8_t down[256 / kRun];  // 1: the shift is -1/8

  float SubScale(int j) const {
    return F16ToF32(scale) * static_cast<float>(2 * scales[j] + 1);
  }
  // Level and shift.
  float Value(int element) const {
    const auto& codeword = kIq1Grid.codewords[indices[element / 8]];
    return static_cast<float>(codeword[static_cast<size_t>(element % 8)]) +
           (down[element / kRun] != 0 ? -0.125f : 0.125f);
  }

  void Decode(float* dst) const {
    for (int j = 0; j < kSubs; ++j) {
      const float sub_scale = SubScale(j);
      for (int e = j * kSub; e < (j + 1) * kSub; ++e) {
        dst[e] = sub_scale * Value(e);
      }
    }
  }

  void Encode(const float* src) {
    float fits[kSubs];
    for (int j = 0; j < kSubs; ++j) fits[j] = FitSub(src, j);
    const float most = *std::max_element(fits, fits + kSubs);
    scale = F32ToF16(most / 15.0f);
    const float inverse = InverseScale(F16ToF32(scale));
    Correlation all;
    for (int j = 0; j < kSubs; ++j) {
      scales[j] = static_cast<uint8_t>(
          RoundCode((fits[j] * inverse - 1.0f) / 2.0f, 0, 7));
      const Correlation sub = Assign(src, j, SubScale(j));
      const float factor = static_cast<float>(2 * scales[j] + 1);
      all.products += sub.products * factor;
      all.squares += sub.squares * factor * factor;
    }
    if (most > 0.0f) scale = F32ToF16(all.Scale());
  }

 private:
  // Chooses the codewords and shifts of sub-block j at a scale.
  Correlation Assign(const float* src, int j, float at) {
    const float inverse = InverseScale(at);
    for (int run = j * kSub / kRun; run < (j + 1) * kSub / kRun; ++run) {
      float best = std::numeric_limits<float>::infinity();
      for (const int shift_down : {0, 1}) {
        const float shift = shift_down != 0 ? -0.125f : 0.125f;
        uint16_t found[kRun / 8];
        float distance = 0.0f;
        for (int g = 0; g < kRun / 8; ++g) {
          float scaled[8];
          for (int i = 0; i < 8; ++i) {
            scaled[i] = src[run * kRun + 8 * g + i] * inverse - shift;
          }
          const Codeword nearest = NearestCodeword(kIq1Grid, scaled);
          found[g] = static_cast<uint16_t>(nearest.index);
          distance += nearest.distance;
        }
        if (shift_down != 0 && !(distance < best)) continue;
        best = distance;
        down[run] = static_cast<uint8_t>(shift_down);
        std::copy_n(found, kRun / 8, indices + run * (kRun / 8));
      }
    }
    Correlation correlation;
    for (int e = j * kSub; e < (j + 1) * kSub; ++e) {
      correlation.Add(src[e], Value(e));
    }
    return correlation;
  }

  // The best of the scales that least squares finds from several.
  float FitSub(const float* src, int j) {
    const float extreme = std::abs(Extreme(src + j * kSub, kSub));
    float best = 0.0f;
    float best_gain = 0.0f;
    if (!std::isfinite(extreme)) return 0.0f;
    for (int k = 0; k < 3; ++k) {
      const float at = extreme * (0.45f + 0.15f * static_cast<float>(k));
      const Correlation correlation = Assign(src, j, at);
      if (correlation.Gain() > best_gain && correlation.products > 0.0f) {
        best = correlation.Scale();
        best_gain = correlation.Gain();
      }
    }
    return best;
  }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ1_BLOCK_H_
