// What the blocks of 256 elements share: sub-blocks of kSub elements, whose
// scales are themselves small integers times the scale of the block. Formats
// unpack their bits into these structs and pack them from there.
#ifndef INLAY_KERNELS_QUANT_SUPER_BLOCK_H_
#define INLAY_KERNELS_QUANT_SUPER_BLOCK_H_

#include <algorithm>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
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
};

// BlockGrid::fit for AffineSuperBlock: codes from 0 to most_code, scales and
// minima from 0 to most_scale.
template <int kSub, int kMostScale>
void RoundAffineFits(const Affine* fits, GridScales* scales) {
  constexpr int kSubs = kSuperBlock / kSub;
  Affine most = {0.0f, 0.0f};
  for (int j = 0; j < kSubs; ++j) {
    most.scale = std::max(most.scale, fits[j].scale);
    most.min = std::max(most.min, fits[j].min);
  }
  scales->block_scale = F32ToF16(most.scale / static_cast<float>(kMostScale));
  scales->block_min = F32ToF16(most.min / static_cast<float>(kMostScale));
  const float block_scale = F16ToF32(scales->block_scale);
  const float block_min = F16ToF32(scales->block_min);
  const float steps = InverseScale(block_scale);
  const float min_steps = InverseScale(block_min);
  for (int j = 0; j < kSubs; ++j) {
    const int s = RoundCode(fits[j].scale * steps, 0, kMostScale);
    const int m = RoundCode(fits[j].min * min_steps, 0, kMostScale);
    scales->sub_scales[j] = static_cast<int8_t>(s);
    scales->sub_mins[j] = static_cast<uint8_t>(m);
    scales->scale[j] = block_scale * static_cast<float>(s);
    scales->min[j] = -(block_min * static_cast<float>(m));
  }
}
template <int kSub, int kMostCode, int kMostScale>
void FitAffineSuper(const float* x, const float* weights, int64_t blocks,
                    GridScales* scales) {
  constexpr int kSubs = kSuperBlock / kSub;
  constexpr int64_t kAtOnce = kFitGroups / kSubs;
  Affine fits[kFitGroups];
  for (int64_t first = 0; first < blocks; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, blocks - first);
    const int64_t at = first * kSuperBlock;
    FitAffines({kMostCode, /*keep_zero=*/true}, x + at,
               weights == nullptr ? nullptr : weights + at, some * kSubs, kSub,
               fits);
    for (int64_t b = 0; b < some; ++b) {
      RoundAffineFits<kSub, kMostScale>(fits + b * kSubs, scales + first + b);
    }
  }
}

// BlockGrid::fit for SignedSuperBlock: scales from least_scale to
// -least_scale - 1.
template <int kSub>
void RoundSignedFits(const float* fits, int least_scale, GridScales* scales) {
  constexpr int kSubs = kSuperBlock / kSub;
  scales->block_scale =
      F32ToF16(Extreme(fits, kSubs) / static_cast<float>(least_scale));
  const float block_scale = F16ToF32(scales->block_scale);
  const float steps = InverseScale(block_scale);
  for (int j = 0; j < kSubs; ++j) {
    const int s = RoundCode(fits[j] * steps, least_scale, -least_scale - 1);
    scales->sub_scales[j] = static_cast<int8_t>(s);
    scales->scale[j] = block_scale * static_cast<float>(s);
    scales->min[j] = 0.0f;
  }
}
template <int kSub>
void FitSignedSuper(const ScaleRule& rule, int least_scale, const float* x,
                    const float* weights, int64_t blocks, GridScales* scales) {
  constexpr int kSubs = kSuperBlock / kSub;
  constexpr int64_t kAtOnce = kFitGroups / kSubs;
  float fits[kFitGroups];
  for (int64_t first = 0; first < blocks; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, blocks - first);
    const int64_t at = first * kSuperBlock;
    FitScales(rule, x + at, weights == nullptr ? nullptr : weights + at,
              some * kSubs, kSub, fits);
    for (int64_t b = 0; b < some; ++b) {
      RoundSignedFits<kSub>(fits + b * kSubs, least_scale, scales + first + b);
    }
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_SUPER_BLOCK_H_
