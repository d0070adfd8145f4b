// Scales of many groups of values at once: what FitScale and FitAffine (fit.h)
// find for each, to the bit, with a group in each lane of a vector. A group is
// what shares a scale: a block of 32, a sub-block of 256. Values that are not
// finite give some scale.
#ifndef INLAY_KERNELS_QUANT_FIT_GROUPS_H_
#define INLAY_KERNELS_QUANT_FIT_GROUPS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/quant/fit.h"
#include "kernels/quant/grid.h"
#include "memory/dtype.h"

namespace inlay {

inline constexpr int kMaxFitGroupSize = 32;
// As many as the widest vectors have lanes: what callers best ask for at once.
inline constexpr int64_t kFitGroups = 16;

// The levels of value = scale * level, and what FitScale tries.
struct ScaleRule {
  float first;
  float step;
  // Integers from least to most, or the levels of iq4.h.
  float least;
  float most;
  bool is_iq4 = false;
};

// The extreme value at -127 and around.
inline constexpr ScaleRule kIq4Rule = {.first = -127.0f,
                                       .step = 5.0f,
                                       .least = -127.0f,
                                       .most = 113.0f,
                                       .is_iq4 = true};

// The codes of value = scale * code - min go from 0 to `most`.
struct AffineRule {
  int most;
  bool keep_zero;  // the minimum is not below 0
};

// x: [groups, size], size <= kMaxFitGroupSize. weights: the same, or null: all
// are 1. scales, fits: [groups].
void FitScales(const ScaleRule& rule, const float* x, const float* weights,
               int64_t groups, int size, float* scales);
void FitAffines(const AffineRule& rule, const float* x, const float* weights,
                int64_t groups, int size, Affine* fits);

// Of one group of any size: what FitZeroPoint (fit.h) finds, to the bit, with a
// scale that is tried in each lane.
ZeroPoint FitGroupZeroPoint(const float* x, const float* weights, int64_t count,
                            const ZeroPointRule& rule);

// Of blocks that have no sub-blocks.
inline void SetBlockScales(const float* fits, int64_t blocks,
                           GridScales* scales) {
  for (int64_t b = 0; b < blocks; ++b) {
    scales[b].block_scale = F32ToF16(fits[b]);
    scales[b].scale[0] = F16ToF32(scales[b].block_scale);
    scales[b].min[0] = 0.0f;
  }
}

// BlockGrid::fit of blocks of 32 elements with a scale each. `plain(x)`: the
// encoder's scale, where there are no weights.
template <typename Plain>
void FitScaleBlocks(const ScaleRule& rule, Plain plain, const float* x,
                    const float* weights, int64_t blocks, GridScales* scales) {
  constexpr int kSize = 32;
  float fits[kFitGroups];
  for (int64_t first = 0; first < blocks; first += kFitGroups) {
    const int64_t some = std::min(kFitGroups, blocks - first);
    if (weights != nullptr) {
      FitScales(rule, x + first * kSize, weights + first * kSize, some, kSize,
                fits);
    }
    for (int64_t b = 0; weights == nullptr && b < some; ++b) {
      fits[b] = plain(x + (first + b) * kSize);
    }
    SetBlockScales(fits, some, scales + first);
  }
}

// The same with a minimum; without weights the range's.
inline void FitAffineBlocks(int most, const float* x, const float* weights,
                            int64_t blocks, GridScales* scales) {
  constexpr int kSize = 32;
  const auto whole = static_cast<float>(most);
  Affine fits[kFitGroups];
  for (int64_t first = 0; first < blocks; first += kFitGroups) {
    const int64_t some = std::min(kFitGroups, blocks - first);
    if (weights != nullptr) {
      FitAffines({most, /*keep_zero=*/false}, x + first * kSize,
                 weights + first * kSize, some, kSize, fits);
    }
    for (int64_t b = 0; b < some; ++b) {
      if (weights == nullptr) {
        const Range range = RangeOf(x + (first + b) * kSize, kSize);
        fits[b] = {range.most / whole - range.least / whole, -range.least};
      }
      GridScales& block = scales[first + b];
      block.block_scale = F32ToF16(fits[b].scale);
      block.block_min = F32ToF16(-fits[b].min);
      block.scale[0] = F16ToF32(block.block_scale);
      block.min[0] = F16ToF32(block.block_min);
    }
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_FIT_GROUPS_H_
