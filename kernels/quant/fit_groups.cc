// Sums go over a group's elements in order, as fit.h has them, so that vectors
// of any length give the same bits. Element i of all the groups of a vector is
// one vector. Several roundings are tried at once: each sum waits for its last
// addition.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quant/fit_groups.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/quant/fit_groups.h"
#include "kernels/quant/levels-inl.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace fit {

using DI = hn::RebindToSigned<DF>;

HWY_INLINE VF Set(float value) { return hn::Set(DF(), value); }

// element[i]: those of `groups` <= kLanes groups; other lanes repeat the last.
HWY_INLINE void Transpose(const float* x, int64_t groups, int size,
                          float* elements) {
  const DI di;
  const auto lane =
      hn::Min(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(groups - 1)));
  const auto index = hn::Mul(lane, hn::Set(di, size));
  for (int i = 0; i < size; ++i, elements += kLanes) {
    hn::Store(hn::GatherIndex(DF(), x + i, index), DF(), elements);
  }
}

HWY_INLINE VF Inverse(VF scale) {
  const VF inverse = hn::Div(Set(1.0f), scale);
  const VF infinity = Set(std::numeric_limits<float>::infinity());
  return hn::IfThenElseZero(hn::Lt(hn::Abs(inverse), infinity), inverse);
}

// One of the scales tried.
struct Trial {
  template <bool kWeighted, class Levels>
  HWY_INLINE void Add(const Levels& levels, VF x, VF weight) {
    const VF level = levels.Nearest(hn::Mul(candidate, x));
    const VF weighted = kWeighted ? hn::Mul(weight, level) : level;
    products = hn::Add(products, hn::Mul(weighted, x));
    squares = hn::Add(squares, hn::Mul(weighted, level));
  }
  HWY_INLINE void Judge(VF& best, VF& best_gain) const {
    const VF ratio = hn::Div(products, squares);
    const VF gain = hn::IfThenElseZero(hn::Gt(squares, hn::Zero(DF())),
                                       hn::Mul(ratio, products));
    const auto better = hn::Gt(gain, best_gain);
    best = hn::IfThenElse(better, ratio, best);
    best_gain = hn::IfThenElse(better, gain, best_gain);
  }
  VF candidate;
  VF products = hn::Zero(DF());
  VF squares = hn::Zero(DF());
};

// x, weights: as Transpose leaves them.
template <bool kWeighted, class Levels>
VF FitScale(const ScaleRule& rule, const float* x, const float* weights,
            int size) {
  const DF d;
  const Levels levels(rule.least, rule.most);
  VF extreme = hn::Zero(d);
  for (int i = 0; i < size; ++i) {
    const VF v = hn::Load(d, x + i * kLanes);
    extreme = hn::IfThenElse(hn::Gt(hn::Abs(v), hn::Abs(extreme)), v, extreme);
  }
  const VF inverse = Inverse(extreme);
  VF best = hn::Div(extreme, Set(rule.first));
  VF best_gain = hn::Zero(d);
  // The last is tried twice, which changes nothing.
  const auto candidate = [&](int k) HWY_ATTR {
    const auto steps = static_cast<float>(std::min(k, 9));
    return hn::Mul(Set(rule.first + steps * rule.step), inverse);
  };
  for (int k = -9; k <= 9; k += 4) {
    Trial a{candidate(k)}, b{candidate(k + 1)}, c{candidate(k + 2)},
        e{candidate(k + 3)};
    for (int i = 0; i < size; ++i) {
      const VF v = hn::Load(d, x + i * kLanes);
      const VF w = kWeighted ? hn::Load(d, weights + i * kLanes) : v;
      a.template Add<kWeighted>(levels, v, w);
      b.template Add<kWeighted>(levels, v, w);
      c.template Add<kWeighted>(levels, v, w);
      e.template Add<kWeighted>(levels, v, w);
    }
    a.Judge(best, best_gain);
    b.Judge(best, best_gain);
    c.Judge(best, best_gain);
    e.Judge(best, best_gain);
  }
  return hn::IfThenZeroElse(hn::Eq(inverse, hn::Zero(d)), best);
}

struct AffineLanes {
  VF scale, min;
};

// What does not depend on codes.
struct Totals {
  VF n, sum;
  bool keep_zero;
};

// One of the widths tried.
struct AffineTrial {
  template <bool kWeighted>
  HWY_INLINE void Add(VF steps, VF most, VF x, VF weight, float* code_at) {
    const VF bounded = hn::Min(hn::Mul(steps, factor), most);
    const VF code = hn::Trunc(hn::Add(bounded, Set(kBelowHalf)));
    hn::Store(code, DF(), code_at);
    const VF weighted = kWeighted ? hn::Mul(weight, code) : code;
    c = hn::Add(c, weighted);
    cc = hn::Add(cc, hn::Mul(weighted, code));
    cx = hn::Add(cx, hn::Mul(weighted, x));
  }
  HWY_INLINE void Fit(const Totals& of) {
    const DF d;
    const VF zero = hn::Zero(d);
    const VF determinant = hn::Sub(hn::Mul(of.n, cc), hn::Mul(c, c));
    const VF offset =
        hn::Div(hn::Sub(hn::Mul(c, cx), hn::Mul(cc, of.sum)), determinant);
    const VF slope =
        hn::Div(hn::Sub(hn::Mul(of.n, cx), hn::Mul(c, of.sum)), determinant);
    const VF mean = hn::Div(hn::Neg(of.sum), of.n);
    VF scale_of_codes = slope, min_of_codes = offset, min_of_one = mean;
    if (of.keep_zero) {
      const auto above = hn::Gt(offset, zero);
      scale_of_codes = hn::IfThenElse(above, slope, hn::Div(cx, cc));
      min_of_codes = hn::IfThenElseZero(above, offset);
      min_of_one = hn::IfThenElseZero(hn::Lt(zero, mean), mean);
    }
    const auto varies = hn::Gt(determinant, zero);
    fit.scale = hn::IfThenElseZero(varies, scale_of_codes);
    fit.min = hn::IfThenElse(varies, min_of_codes, min_of_one);
  }
  template <bool kWeighted>
  HWY_INLINE void AddError(VF code, VF x, VF weight) {
    const VF off = hn::Sub(hn::Sub(hn::Mul(fit.scale, code), fit.min), x);
    const VF weighted = kWeighted ? hn::Mul(weight, off) : off;
    error = hn::Add(error, hn::Mul(weighted, off));
  }
  HWY_INLINE void Judge(AffineLanes& best, VF& best_error) const {
    const auto better =
        hn::And(hn::Lt(error, best_error), hn::Ge(fit.scale, hn::Zero(DF())));
    best.scale = hn::IfThenElse(better, fit.scale, best.scale);
    best.min = hn::IfThenElse(better, fit.min, best.min);
    best_error = hn::IfThenElse(better, error, best_error);
  }
  VF factor;
  VF c = hn::Zero(DF());
  VF cc = hn::Zero(DF());
  VF cx = hn::Zero(DF());
  AffineLanes fit = {hn::Zero(DF()), hn::Zero(DF())};
  VF error = hn::Zero(DF());
};

template <bool kWeighted>
AffineLanes FitAffine(const AffineRule& rule, const float* x,
                      const float* weights, int size) {
  const DF d;
  const VF zero = hn::Zero(d);
  const VF infinity = Set(std::numeric_limits<float>::infinity());
  VF low = infinity, high = hn::Neg(infinity);
  Totals totals = {zero, zero, rule.keep_zero};
  for (int i = 0; i < size; ++i) {
    const VF v = hn::Load(d, x + i * kLanes);
    const VF w = kWeighted ? hn::Load(d, weights + i * kLanes) : Set(1.0f);
    low = hn::IfThenElse(hn::Lt(v, low), v, low);
    high = hn::IfThenElse(hn::Gt(v, high), v, high);
    totals.n = hn::Add(totals.n, w);
    totals.sum = hn::Add(totals.sum, kWeighted ? hn::Mul(w, v) : v);
  }
  const auto any = hn::Le(low, high);
  low = hn::IfThenElseZero(any, low);
  high = hn::IfThenElseZero(any, high);
  const VF least =
      rule.keep_zero ? hn::IfThenZeroElse(hn::Lt(zero, low), low) : low;
  const VF width = hn::Sub(high, least);
  const VF inverse = Inverse(width);
  const auto whole = static_cast<float>(rule.most);
  const VF most = Set(whole);
  alignas(64) float steps[kMaxFitGroupSize * kLanes];
  alignas(64) float codes[2][kMaxFitGroupSize * kLanes];
  for (int i = 0; i < size; ++i) {
    const VF v = hn::Load(d, x + i * kLanes);
    hn::Store(hn::Mul(hn::Sub(v, least), inverse), d, steps + i * kLanes);
  }
  AffineLanes best = {hn::Div(width, most), hn::Neg(least)};
  VF best_error = infinity;
  for (int k = -12; k <= 9; k += 2) {
    AffineTrial a{Set(whole + 0.1f * static_cast<float>(k))};
    AffineTrial b{Set(whole + 0.1f * static_cast<float>(k + 1))};
    for (size_t i = 0; i < static_cast<size_t>(size) * kLanes; i += kLanes) {
      const VF v = hn::Load(d, x + i);
      const VF w = kWeighted ? hn::Load(d, weights + i) : v;
      const VF step = hn::Load(d, steps + i);
      a.template Add<kWeighted>(step, most, v, w, codes[0] + i);
      b.template Add<kWeighted>(step, most, v, w, codes[1] + i);
    }
    a.Fit(totals);
    b.Fit(totals);
    for (size_t i = 0; i < static_cast<size_t>(size) * kLanes; i += kLanes) {
      const VF v = hn::Load(d, x + i);
      const VF w = kWeighted ? hn::Load(d, weights + i) : v;
      a.template AddError<kWeighted>(hn::Load(d, codes[0] + i), v, w);
      b.template AddError<kWeighted>(hn::Load(d, codes[1] + i), v, w);
    }
    a.Judge(best, best_error);
    b.Judge(best, best_error);
  }
  const auto flat = hn::Eq(inverse, zero);
  return {hn::IfThenZeroElse(flat, best.scale),
          hn::IfThenElse(flat, hn::Neg(least), best.min)};
}

// Of a scale and zero point in each lane: the sums over one group.
struct ZeroPointTrial {
  HWY_INLINE explicit ZeroPointTrial(const ZeroPointTrials& from, size_t at)
      : scale(hn::Load(DF(), from.scale + at)),
        zero(hn::Load(DF(), from.zero + at)),
        inverse(Inverse(scale)) {}
  HWY_INLINE void Add(const IntegerLevels& codes, VF x, VF weight) {
    const VF code = codes.Nearest(hn::Add(hn::Mul(x, inverse), zero));
    const VF level = hn::Sub(code, zero);
    const VF off = hn::Sub(hn::Mul(scale, level), x);
    const VF weighted = hn::Mul(weight, level);
    error = hn::Add(error, hn::Mul(hn::Mul(weight, off), off));
    products = hn::Add(products, hn::Mul(weighted, x));
    squares = hn::Add(squares, hn::Mul(weighted, level));
  }
  HWY_INLINE void Store(size_t at, ZeroPointTrials* to) const {
    hn::Store(error, DF(), to->error + at);
    hn::Store(products, DF(), to->products + at);
    hn::Store(squares, DF(), to->squares + at);
  }
  VF scale, zero, inverse;
  VF error = hn::Zero(DF());
  VF products = hn::Zero(DF());
  VF squares = hn::Zero(DF());
};

// fit(first group, groups, x, weights): of up to kLanes groups, transposed.
template <class Fit>
HWY_INLINE void ForLanes(const float* x, const float* weights, int64_t groups,
                         int size, const Fit& fit) {
  constexpr auto kGroups = static_cast<int64_t>(kLanes);
  alignas(64) float values[kMaxFitGroupSize * kLanes];
  alignas(64) float of_values[kMaxFitGroupSize * kLanes];
  for (int64_t first = 0; first < groups; first += kGroups) {
    const int64_t some = std::min(kGroups, groups - first);
    Transpose(x + first * size, some, size, values);
    if (weights != nullptr) {
      Transpose(weights + first * size, some, size, of_values);
    }
    fit(first, some, values, of_values);
  }
}

}  // namespace fit

void RunFitScales(const ScaleRule& rule, const float* x, const float* weights,
                  int64_t groups, int size, float* scales) {
  using fit::FitScale;
  const bool weighted = weights != nullptr;
  const auto fit_lanes =
      rule.is_iq4
          ? (weighted ? FitScale<true, Iq4Levels> : FitScale<false, Iq4Levels>)
          : (weighted ? FitScale<true, IntegerLevels>
                      : FitScale<false, IntegerLevels>);
  fit::ForLanes(x, weights, groups, size,
                [&](int64_t first, int64_t some, const float* values,
                    const float* of_values) HWY_ATTR {
                  alignas(64) float lanes[kLanes];
                  hn::Store(fit_lanes(rule, values, of_values, size), DF(),
                            lanes);
                  std::copy_n(lanes, some, scales + first);
                });
}

void RunFitAffines(const AffineRule& rule, const float* x, const float* weights,
                   int64_t groups, int size, Affine* fits) {
  const bool weighted = weights != nullptr;
  fit::ForLanes(
      x, weights, groups, size,
      [&](int64_t first, int64_t some, const float* values,
          const float* of_values) HWY_ATTR {
        const fit::AffineLanes best =
            weighted ? fit::FitAffine<true>(rule, values, of_values, size)
                     : fit::FitAffine<false>(rule, values, of_values, size);
        alignas(64) float scale[kLanes];
        alignas(64) float min[kLanes];
        hn::Store(best.scale, DF(), scale);
        hn::Store(best.min, DF(), min);
        for (int64_t i = 0; i < some; ++i) {
          fits[first + i] = {scale[i], min[i]};
        }
      });
}

void RunSumTrials(const float* x, const float* weights, int64_t count,
                  float most, ZeroPointTrials* trials) {
  const IntegerLevels codes(0.0f, most);
  static_assert(ZeroPointTrials::kRoom % (2 * kLanes) == 0);
  for (size_t at = 0; at < ZeroPointTrials::kCount; at += 2 * kLanes) {
    fit::ZeroPointTrial a(*trials, at), b(*trials, at + kLanes);
    for (int64_t i = 0; i < count; ++i) {
      const VF v = fit::Set(x[i]);
      const VF w = fit::Set(weights[i]);
      a.Add(codes, v, w);
      b.Add(codes, v, w);
    }
    a.Store(at, trials);
    b.Store(at + kLanes, trials);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunFitScales);
HWY_EXPORT(RunFitAffines);
HWY_EXPORT(RunSumTrials);

void FitScales(const ScaleRule& rule, const float* x, const float* weights,
               int64_t groups, int size, float* scales) {
  HWY_DYNAMIC_DISPATCH(RunFitScales)(rule, x, weights, groups, size, scales);
}

void FitAffines(const AffineRule& rule, const float* x, const float* weights,
                int64_t groups, int size, Affine* fits) {
  HWY_DYNAMIC_DISPATCH(RunFitAffines)(rule, x, weights, groups, size, fits);
}

ZeroPoint FitGroupZeroPoint(const float* x, const float* weights, int64_t count,
                            const ZeroPointRule& rule) {
  return FitZeroPointBy(x, weights, count, rule,
                        HWY_DYNAMIC_DISPATCH(RunSumTrials));
}

}  // namespace inlay
#endif  // HWY_ONCE
