// Per target: the nearest of a format's levels, as RoundCode and Iq4Code have
// it, of vectors.
#if defined(INLAY_KERNELS_QUANT_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_QUANT_LEVELS_INL_H_
#undef INLAY_KERNELS_QUANT_LEVELS_INL_H_
#else
#define INLAY_KERNELS_QUANT_LEVELS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/quant/iq4.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {

// The largest float below 1/2: trunc(v + it) is v to nearest, halves up, of
// every v from 0 to 2^22. With 1/2 itself the sum would round up to 1 from
// just below a half.
constexpr float kBelowHalf = 0x1.fffffep-2f;

// NaN gives the bound.
HWY_INLINE VF AtLeast(VF value, VF bound) {
#if HWY_ARCH_X86
  return hn::Max(value, bound);  // the second operand, where one is NaN
#else
  return hn::IfThenElse(hn::Gt(value, bound), value, bound);
#endif
}

// Integers from least to most; of NaN the least.
struct IntegerLevels {
  HWY_INLINE IntegerLevels(float first, float last)
      : least(hn::Set(DF(), first)), most(hn::Set(DF(), last)) {}
  HWY_INLINE VF Nearest(VF value) const {
    const VF v = hn::Min(AtLeast(value, least), most);
    const VF half = hn::Set(DF(), kBelowHalf);
    return hn::Trunc(hn::Add(v, hn::CopySignToAbs(half, v)));
  }
  VF least, most;
};

struct Iq4Levels {
  HWY_INLINE Iq4Levels(float, float) {}
  HWY_INLINE VF Nearest(VF value) const {
    const DF d;
    VF level = hn::Set(d, kIq4Levels[0]);
    HWY_UNROLL(15)
    for (int i = 0; i < 15; ++i) {
      const auto below = static_cast<float>(kIq4Levels[i]);
      const auto above = static_cast<float>(kIq4Levels[i + 1]);
      const auto is_above = hn::Gt(value, hn::Set(d, (below + above) / 2));
      level = hn::IfThenElse(is_above, hn::Set(d, above), level);
    }
    return level;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
