// What the blocks of 256 elements share: sub-blocks of kSub elements, whose
// scales are themselves small integers times the scale of the block. Formats
// unpack their bits into these structs and pack them from there.
#ifndef INLAY_KERNELS_QUANT_SUPER_BLOCK_H_
#define INLAY_KERNELS_QUANT_SUPER_BLOCK_H_

#include <algorithm>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"
#include "memory/dtype.h"

namespace inlay {

inline constexpr int kSuperBlock = 256;

// value = (scale * scales[j]) * code - (min * mins[j]).
template <int kSub>
struct AffineSuperBlock {
  static constexpr int kSubs = kSuperBlock / kSub;
  uint16_t scale;  // f16
  uint16_t min;    // f16
  uint8_t scales[kSubs];
  uint8_t mins[kSubs];
  uint8_t codes[kSuperBlock];

  void Decode(float* dst) const {
    const float block_scale = F16ToF32(scale);
    const float block_min = F16ToF32(min);
    for (int j = 0; j < kSubs; ++j) {
      const float sub_scale = block_scale * static_cast<float>(scales[j]);
      const float sub_min = block_min * static_cast<float>(mins[j]);
      for (int i = j * kSub; i < (j + 1) * kSub; ++i) {
        dst[i] = sub_scale * static_cast<float>(codes[i]) - sub_min;
      }
    }
  }

  // Codes from 0 to most_code, scales and minima from 0 to most_scale.
  void Encode(const float* src, int most_code, int most_scale) {
    Affine fits[kSubs];
    Affine most = {0.0f, 0.0f};
    for (int j = 0; j < kSubs; ++j) {
      fits[j] = FitAffine(src + j * kSub, kSub, most_code);
      most.scale = std::max(most.scale, fits[j].scale);
      most.min = std::max(most.min, fits[j].min);
    }
    scale = F32ToF16(most.scale / static_cast<float>(most_scale));
    min = F32ToF16(most.min / static_cast<float>(most_scale));
    const float block_scale = F16ToF32(scale);
    const float block_min = F16ToF32(min);
    for (int j = 0; j < kSubs; ++j) {
      const int s =
          RoundCode(fits[j].scale * InverseScale(block_scale), 0, most_scale);
      const int m =
          RoundCode(fits[j].min * InverseScale(block_min), 0, most_scale);
      scales[j] = static_cast<uint8_t>(s);
      mins[j] = static_cast<uint8_t>(m);
      const float inverse = InverseScale(block_scale * static_cast<float>(s));
      const float sub_min = block_min * static_cast<float>(m);
      for (int i = j * kSub; i < (j + 1) * kSub; ++i) {
        codes[i] = static_cast<uint8_t>(
            RoundCode((src[i] + sub_min) * inverse, 0, most_code));
      }
    }
  }
};

// value = (scale * scales[j]) * level.
template <int kSub>
struct SignedSuperBlock {
  static constexpr int kSubs = kSuperBlock / kSub;
  uint16_t scale;  // f16
  int8_t scales[kSubs];
  int8_t levels[kSuperBlock];

  void Decode(float* dst) const {
    const float block_scale = F16ToF32(scale);
    for (int j = 0; j < kSubs; ++j) {
      const float sub_scale = block_scale * static_cast<float>(scales[j]);
      for (int i = j * kSub; i < (j + 1) * kSub; ++i) {
        dst[i] = sub_scale * static_cast<float>(levels[i]);
      }
    }
  }

  // Scales from least_scale to -least_scale - 1. nearest(v) is the level
  // nearest to v; first and step as FitScale has them.
  template <typename Nearest>
  void Encode(const float* src, int least_scale, float first, float step,
              Nearest nearest) {
    float fits[kSubs];
    for (int j = 0; j < kSubs; ++j) {
      fits[j] = FitScale(src + j * kSub, kSub, first, step, nearest);
    }
    scale = F32ToF16(Extreme(fits, kSubs) / static_cast<float>(least_scale));
    const float block_scale = F16ToF32(scale);
    for (int j = 0; j < kSubs; ++j) {
      const int s = RoundCode(fits[j] * InverseScale(block_scale), least_scale,
                              -least_scale - 1);
      scales[j] = static_cast<int8_t>(s);
      const float inverse = InverseScale(block_scale * static_cast<float>(s));
      for (int i = j * kSub; i < (j + 1) * kSub; ++i) {
        levels[i] = static_cast<int8_t>(nearest(src[i] * inverse));
      }
    }
  }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_SUPER_BLOCK_H_
