// Grids of our groups of integers (grouped.h).
#ifndef INLAY_KERNELS_QUANT_GROUP_GRID_H_
#define INLAY_KERNELS_QUANT_GROUP_GRID_H_

#include <cstring>

#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/grouped.h"

namespace inlay {

// BlockGrid of U4Group and I8Group: whole zero points and scales of f16, so
// that layouts of other engines can say what comes out. Codes of kBits bits
// begin at kLeast.
template <int kCount, int kBits, int kLeast>
void FitGroup(const float* x, const float* weights, int64_t blocks,
              GridScales* scales) {
  for (int64_t b = 0; b < blocks; ++b, ++scales, x += kCount) {
    const ZeroPoint fit =
        FitGroupZeroPoint(x, weights, kCount, {.most = (1 << kBits) - 1});
    scales->scale[0] = fit.scale;
    scales->min[0] = -fit.scale * static_cast<float>(fit.zero + kLeast);
    if (weights != nullptr) weights += kCount;
  }
}

template <int kCount>
void PackU4Group(const GridScales& scales, const int8_t* levels,
                 std::byte* dst) {
  U4Group<kCount> group;
  group.scale = scales.scale[0];
  group.min = scales.min[0];
  PackBits<4, 16, kCount>(levels, group.codes);
  StoreBlock(group, dst, 0);
}

template <int kCount>
void PackI8Group(const GridScales& scales, const int8_t* levels,
                 std::byte* dst) {
  I8Group<kCount> group;
  group.scale = scales.scale[0];
  group.min = scales.min[0];
  std::memcpy(group.codes, levels, sizeof(group.codes));
  StoreBlock(group, dst, 0);
}

template <int kCount>
inline constexpr BlockGrid kU4Grid = {.elements = kCount,
                                      .block_bytes = sizeof(U4Group<kCount>),
                                      .sub_elements = kCount,
                                      .least = 0,
                                      .most = 15,
                                      .is_iq4 = false,
                                      .fit = FitGroup<kCount, 4, 0>,
                                      .pack = PackU4Group<kCount>};
template <int kCount>
inline constexpr BlockGrid kI8Grid = {.elements = kCount,
                                      .block_bytes = sizeof(I8Group<kCount>),
                                      .sub_elements = kCount,
                                      .least = -128,
                                      .most = 127,
                                      .is_iq4 = false,
                                      .fit = FitGroup<kCount, 8, -128>,
                                      .pack = PackI8Group<kCount>};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_GROUP_GRID_H_
