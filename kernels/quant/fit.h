// Scales for the encoders of formats whose codes are few: the scale, or scale
// and minimum, of the least squared error among those that least squares finds
// from several roundings. The usual formula (the largest value gets the largest
// code) is among the roundings tried. Errors are weighted; of equal weights
// (kEqualWeights) the sums are those without. Values that are not finite give
// some scale.
#ifndef INLAY_KERNELS_QUANT_FIT_H_
#define INLAY_KERNELS_QUANT_FIT_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/quant/block.h"
#include "memory/dtype.h"

namespace inlay {

inline constexpr int kMaxFitCount = 256;
inline constexpr std::array<float, kMaxFitCount> kEqualWeights = [] {
  std::array<float, kMaxFitCount> ones{};
  for (float& one : ones) one = 1.0f;
  return ones;
}();

// RoundCode in float arithmetic, which compilers do several at a time of.
inline float RoundLevel(float value, float least, float most) {
  value = value > least ? value : least;  // NaN too
  value = value < most ? value : most;
  const auto whole = static_cast<float>(static_cast<int>(value));
  const float rest = value - whole;
  return whole + (rest >= 0.5f ? 1.0f : 0.0f) - (rest <= -0.5f ? 1.0f : 0.0f);
}

// A scale for value = scale * level, where nearest(v) is the level nearest to
// v. The value of largest magnitude is tried at first + k * step, |k| <= 9.
template <typename Nearest>
float FitScale(const float* x, const float* weights, int count, float first,
               float step, Nearest nearest) {
  const float extreme = Extreme(x, count);
  const float inverse = InverseScale(extreme);
  if (inverse == 0.0f) return 0.0f;
  float best = extreme / first;
  float best_gain = 0.0f;
  for (int k = -9; k <= 9; ++k) {
    const float candidate = (first + static_cast<float>(k) * step) * inverse;
    float levels[kMaxFitCount];
    for (int i = 0; i < count; ++i) levels[i] = nearest(candidate * x[i]);
    float products = 0.0f;
    float squares = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float weighted = weights[i] * levels[i];
      products += weighted * x[i];
      squares += weighted * levels[i];
    }
    // The error of the best scale for these levels is sum(w x^2) less this.
    const float gain = squares > 0.0f ? products / squares * products : 0.0f;
    if (gain > best_gain) {
      best = products / squares;
      best_gain = gain;
    }
  }
  return best;
}

// value = scale * code - min.
struct Affine {
  float scale;
  float min;
};

// The best scale and minimum for given codes: the scale not below 0, and, with
// `keep_zero`, the minimum neither.
inline Affine FitCodes(const float* x, const float* weights, const float* codes,
                       int count, bool keep_zero) {
  float n = 0.0f, c = 0.0f, cc = 0.0f, sum = 0.0f, cx = 0.0f;
  for (int i = 0; i < count; ++i) {
    const float weighted = weights[i] * codes[i];
    n += weights[i];
    c += weighted;
    cc += weighted * codes[i];
    sum += weights[i] * x[i];
    cx += weighted * x[i];
  }
  const float determinant = n * cc - c * c;
  if (!(determinant > 0.0f)) {
    const float min = -sum / n;
    return {0.0f, keep_zero ? std::max(0.0f, min) : min};
  }
  const float min = (c * cx - cc * sum) / determinant;
  if (min > 0.0f || !keep_zero) {
    return {(n * cx - c * sum) / determinant, min};
  }
  return {cx / cc, 0.0f};
}

// Scale and minimum for codes from 0 to `most`, as FitCodes has them.
inline Affine FitAffine(const float* x, const float* weights, int count,
                        int most, bool keep_zero) {
  constexpr int kMaxCount = 32;
  const Range range = RangeOf(x, count);
  const float least = keep_zero ? std::min(range.least, 0.0f) : range.least;
  const float width = range.most - least;
  Affine best = {width / static_cast<float>(most), -least};
  float best_error = std::numeric_limits<float>::infinity();
  const float inverse = InverseScale(width);
  if (inverse == 0.0f) return {0.0f, -least};
  for (int k = -12; k <= 9; ++k) {
    const float steps = static_cast<float>(most) + 0.1f * static_cast<float>(k);
    float codes[kMaxCount];
    for (int i = 0; i < count; ++i) {
      codes[i] = RoundLevel((x[i] - least) * inverse * steps, 0.0f,
                            static_cast<float>(most));
    }
    const Affine fit = FitCodes(x, weights, codes, count, keep_zero);
    float error = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float off = fit.scale * codes[i] - fit.min - x[i];
      error += weights[i] * off * off;
    }
    if (error < best_error && fit.scale >= 0.0f) {
      best = fit;
      best_error = error;
    }
  }
  return best;
}

// What scale and zero point of value = scale * (code - zero) may be: what
// checkpoints of other engines can say.
struct ZeroPointRule {
  int most = 15;              // codes go from 0 to it
  int zero = 0;               // 0: a whole number from 1 to `most`
  DType scale = DType::kF16;  // or bf16, f32
};
struct ZeroPoint {
  float scale;
  int zero;
};

inline float RoundScale(DType dtype, float scale) {
  return dtype == DType::kF16    ? F16ToF32(F32ToF16(scale))
         : dtype == DType::kBF16 ? BF16ToF32(F32ToBF16(scale))
                                 : scale;
}

// Scales and zero points to try, and of the codes to nearest of each: the
// squared error, and what gives their best scale.
struct ZeroPointTrials {
  static constexpr int kCount = 21;
  static constexpr int kRoom = 32;  // whole vectors; others are as the first

  alignas(64) float scale[kRoom];
  alignas(64) float zero[kRoom];
  alignas(64) float error[kRoom];
  alignas(64) float products[kRoom];
  alignas(64) float squares[kRoom];
};

struct CodeSums {
  float products = 0.0f, squares = 0.0f, error = 0.0f;
};
inline CodeSums SumCodes(const float* x, const float* weights, int64_t count,
                         const ZeroPoint& point, float most) {
  CodeSums sums;
  const float inverse = InverseScale(point.scale);
  const auto offset = static_cast<float>(point.zero);
  for (int64_t first = 0; first < count; first += kMaxFitCount) {
    const auto some =
        static_cast<int>(std::min<int64_t>(kMaxFitCount, count - first));
    float levels[kMaxFitCount];
    for (int i = 0; i < some; ++i) {
      levels[i] =
          RoundLevel(x[first + i] * inverse + offset, 0.0f, most) - offset;
    }
    for (int i = 0; i < some; ++i) {
      const float off = point.scale * levels[i] - x[first + i];
      const float weighted = weights[first + i] * levels[i];
      sums.error += weights[first + i] * off * off;
      sums.products += weighted * x[first + i];
      sums.squares += weighted * levels[i];
    }
  }
  return sums;
}

inline void SumTrials(const float* x, const float* weights, int64_t count,
                      float most, ZeroPointTrials* trials) {
  for (int k = 0; k < ZeroPointTrials::kCount; ++k) {
    const ZeroPoint point = {trials->scale[k],
                             static_cast<int>(trials->zero[k])};
    const CodeSums sums = SumCodes(x, weights, count, point, most);
    trials->error[k] = sums.error;
    trials->products[k] = sums.products;
    trials->squares[k] = sums.squares;
  }
}

// Without `weights` the range of the values and 0. `sum`: SumTrials, or what
// does the same.
template <typename Sum>
ZeroPoint FitZeroPointBy(const float* x, const float* weights, int64_t count,
                         const ZeroPointRule& rule, Sum sum) {
  const auto whole = static_cast<float>(rule.most);
  const Range range = RangeOf(x, static_cast<int>(count));
  float least = std::min(range.least, 0.0f);
  float width = std::max(range.most, 0.0f) - least;
  if (rule.zero != 0) {
    least = -std::max(-range.least, range.most);
    width = -2.0f * least;
  }
  const auto point = [&](float scale, float first) -> ZeroPoint {
    if (rule.zero != 0) return {scale, rule.zero};
    return {scale, RoundCode(-first * InverseScale(scale), 1, rule.most)};
  };
  const float full = RoundScale(rule.scale, width / whole);
  ZeroPoint best = point(full, least);
  if (weights == nullptr || full == 0.0f) return best;
  ZeroPointTrials trials;
  for (int k = 0; k < ZeroPointTrials::kRoom; ++k) {
    // Narrower ones cut the extremes off at both ends.
    const int step = k < ZeroPointTrials::kCount ? k : 0;
    const float share = 1.04f - 0.025f * static_cast<float>(step);
    const ZeroPoint tried =
        point(share * full, least + 0.5f * (1.0f - share) * width);
    trials.scale[k] = tried.scale;
    trials.zero[k] = static_cast<float>(tried.zero);
  }
  // The codes of a scale, and the best scale of these codes.
  sum(x, weights, count, whole, &trials);
  for (int k = 0; k < ZeroPointTrials::kCount; ++k) {
    const float products = trials.products[k], squares = trials.squares[k];
    if (squares > 0.0f && products > 0.0f) {
      trials.scale[k] = RoundScale(rule.scale, products / squares);
    }
  }
  sum(x, weights, count, whole, &trials);
  float best_error = std::numeric_limits<float>::infinity();
  for (int k = 0; k < ZeroPointTrials::kCount; ++k) {
    if (!(trials.error[k] < best_error)) continue;
    best = {trials.scale[k], static_cast<int>(trials.zero[k])};
    best_error = trials.error[k];
  }
  return best;
}

inline ZeroPoint FitZeroPoint(const float* x, const float* weights,
                              int64_t count, const ZeroPointRule& rule) {
  return FitZeroPointBy(x, weights, count, rule, SumTrials);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_FIT_H_
