#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quant/nearest_levels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/quant/levels-inl.h"
#include "kernels/quant/nearest_levels.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {

// Sub-blocks are whole vectors: they have 16 elements at least.
template <class Levels>
void FindLevels(const BlockGrid& grid, const GridScales& scales, const float* x,
                int8_t* found) {
  static_assert(kLanes <= 16);
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> di8;
  const Levels levels(static_cast<float>(grid.least),
                      static_cast<float>(grid.most));
  const auto size = static_cast<size_t>(grid.sub_elements);
  for (int j = 0; j < grid.elements / grid.sub_elements; ++j) {
    const VF min = hn::Set(d, scales.min[j]);
    const VF inverse = hn::Set(d, InverseScale(scales.scale[j]));
    for (size_t i = 0; i < size; i += kLanes, x += kLanes, found += kLanes) {
      const VF steps = hn::Mul(hn::Sub(hn::LoadU(d, x), min), inverse);
      const auto whole = hn::ConvertTo(di, levels.Nearest(steps));
      hn::StoreU(hn::DemoteTo(di8, whole), di8, found);
    }
  }
}

void RunNearestLevels(const BlockGrid& grid, const GridScales& scales,
                      const float* x, int8_t* levels) {
  if (grid.is_iq4) {
    FindLevels<Iq4Levels>(grid, scales, x, levels);
  } else {
    FindLevels<IntegerLevels>(grid, scales, x, levels);
  }
}

// The first element whose magnitude is the largest, as Extreme takes it.
HWY_INLINE float ExtremeOf(const float* x) {
  const DF d;
  VF largest = hn::Zero(d);
  for (size_t i = 0; i < kPlainBlock; i += kLanes) {
    largest = hn::Max(hn::Abs(hn::LoadU(d, x + i)), largest);
  }
  largest = hn::MaxOfLanes(d, largest);
  // Of zeros +0.
  if (!(hn::GetLane(largest) > 0.0f)) return 0.0f;
  for (size_t i = 0; i < kPlainBlock; i += kLanes) {
    const auto is_it = hn::Eq(hn::Abs(hn::LoadU(d, x + i)), largest);
    const intptr_t at = hn::FindFirstTrue(d, is_it);
    if (at >= 0) return x[i + static_cast<size_t>(at)];
  }
  return 0.0f;
}

HWY_INLINE Range RangeIn(const float* x) {
  const DF d;
  VF least = hn::LoadU(d, x), most = least;
  for (size_t i = kLanes; i < kPlainBlock; i += kLanes) {
    const VF v = hn::LoadU(d, x + i);
    least = hn::Min(v, least);
    most = hn::Max(v, most);
  }
  const Range range = {hn::GetLane(hn::MinOfLanes(d, least)),
                       hn::GetLane(hn::MaxOfLanes(d, most))};
  // Which of the zeros, what is no number: in the elements' order.
  const bool is_plain =
      range.least < range.most && range.least != 0.0f && range.most != 0.0f;
  return is_plain ? range : RangeOf(x, kPlainBlock);
}

void RunFindExtremes(const float* x, int64_t blocks, float* extremes) {
  for (int64_t b = 0; b < blocks; ++b, x += kPlainBlock) {
    extremes[b] = ExtremeOf(x);
  }
}

void RunFindRanges(const float* x, int64_t blocks, Range* ranges) {
  for (int64_t b = 0; b < blocks; ++b, x += kPlainBlock) {
    ranges[b] = RangeIn(x);
  }
}

void RunRoundCodes(const CodeRule& rule, const float* x,
                   const CodeScale* scales, int64_t blocks, int8_t* codes) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> di8;
  const IntegerLevels levels(rule.least, rule.most);
  const VF offset = hn::Set(d, rule.offset);
  for (int64_t b = 0; b < blocks; ++b) {
    const VF min = hn::Set(d, scales[b].min);
    const VF inverse = hn::Set(d, scales[b].inverse);
    for (size_t i = 0; i < kPlainBlock; i += kLanes) {
      const VF steps = hn::Mul(hn::Sub(hn::LoadU(d, x + i), min), inverse);
      const VF code = levels.Nearest(hn::Add(steps, offset));
      hn::StoreU(hn::DemoteTo(di8, hn::ConvertTo(di, code)), di8, codes + i);
    }
    x += kPlainBlock;
    codes += kPlainBlock;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunNearestLevels);
HWY_EXPORT(RunFindExtremes);
HWY_EXPORT(RunFindRanges);
HWY_EXPORT(RunRoundCodes);

void NearestLevels(const BlockGrid& grid, const GridScales& scales,
                   const float* x, int8_t* levels) {
  HWY_DYNAMIC_DISPATCH(RunNearestLevels)(grid, scales, x, levels);
}

void FindExtremes(const float* x, int64_t blocks, float* extremes) {
  HWY_DYNAMIC_DISPATCH(RunFindExtremes)(x, blocks, extremes);
}

void FindRanges(const float* x, int64_t blocks, Range* ranges) {
  HWY_DYNAMIC_DISPATCH(RunFindRanges)(x, blocks, ranges);
}

void RoundCodes(const CodeRule& rule, const float* x, const CodeScale* scales,
                int64_t blocks, int8_t* codes) {
  HWY_DYNAMIC_DISPATCH(RunRoundCodes)(rule, x, scales, blocks, codes);
}

}  // namespace inlay
#endif  // HWY_ONCE
