// What the blocks of 256 elements share: sub-blocks of kSub elements, whose
// scales are themselves small integers times the scale of the block. Formats
// unpack their bits into these structs and pack them from there.
#ifndef INLAY_KERNELS_QUANT_SUPER_BLOCK_H_
#define INLAY_KERNELS_QUANT_SUPER_BLOCK_H_

#include <algorithm>
#include <cstdint>

#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"
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
template <int kSub, int kMostCode, int kMostScale>
void FitAffineSuper(const float* x, const float* weights, GridScales* scales) {
  constexpr int kSubs = kSuperBlock / kSub;
  if (weights == nullptr) weights = kEqualWeights.data();
  Affine fits[kSubs];
  Affine most = {0.0f, 0.0f};
  for (int j = 0; j < kSubs; ++j) {
    fits[j] = FitAffine(x + j * kSub, weights + j * kSub, kSub, kMostCode,
                        /*keep_zero=*/true);
    most.scale = std::max(most.scale, fits[j].scale);
    most.min = std::max(most.min, fits[j].min);
  }
  scales->block_scale = F32ToF16(most.scale / static_cast<float>(kMostScale));
  scales->block_min = F32ToF16(most.min / static_cast<float>(kMostScale));
  const float block_scale = F16ToF32(scales->block_scale);
  const float block_min = F16ToF32(scales->block_min);
  for (int j = 0; j < kSubs; ++j) {
    const int s =
        RoundCode(fits[j].scale * InverseScale(block_scale), 0, kMostScale);
    const int m =
        RoundCode(fits[j].min * InverseScale(block_min), 0, kMostScale);
    scales->sub_scales[j] = static_cast<int8_t>(s);
    scales->sub_mins[j] = static_cast<uint8_t>(m);
    scales->scale[j] = block_scale * static_cast<float>(s);
    scales->min[j] = -(block_min * static_cast<float>(m));
  }
}

// BlockGrid::fit for SignedSuperBlock: scales from least_scale to
// -least_scale - 1. nearest(v) is the level nearest to v; first and step as
// FitScale has them.
template <int kSub, typename Nearest>
void FitSignedSuper(const float* x, const float* weights, int least_scale,
                    float first, float step, Nearest nearest,
                    GridScales* scales) {
  constexpr int kSubs = kSuperBlock / kSub;
  if (weights == nullptr) weights = kEqualWeights.data();
  float fits[kSubs];
  for (int j = 0; j < kSubs; ++j) {
    fits[j] =
        FitScale(x + j * kSub, weights + j * kSub, kSub, first, step, nearest);
  }
  scales->block_scale =
      F32ToF16(Extreme(fits, kSubs) / static_cast<float>(least_scale));
  const float block_scale = F16ToF32(scales->block_scale);
  for (int j = 0; j < kSubs; ++j) {
    const int s = RoundCode(fits[j] * InverseScale(block_scale), least_scale,
                            -least_scale - 1);
    scales->sub_scales[j] = static_cast<int8_t>(s);
    scales->scale[j] = block_scale * static_cast<float>(s);
    scales->min[j] = 0.0f;
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_SUPER_BLOCK_H_
