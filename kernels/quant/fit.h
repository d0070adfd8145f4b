// Scales for the encoders of formats whose codes are few: the scale, or scale
// and minimum, of the least squared error among those that least squares finds
// from several roundings. The usual formula (the largest value gets the largest
// code) is among the roundings tried. Values that are not finite give some
// scale.
#ifndef INLAY_KERNELS_QUANT_FIT_H_
#define INLAY_KERNELS_QUANT_FIT_H_

#include <algorithm>
#include <cmath>

#include "kernels/quant/block.h"

namespace inlay {

// A scale for value = scale * level, where nearest(v) is the level nearest to
// v. The value of largest magnitude is tried at first + k * step, |k| <= 9.
template <typename Nearest>
float FitScale(const float* x, int count, float first, float step,
               Nearest nearest) {
  const float extreme = Extreme(x, count);
  const float inverse = InverseScale(extreme);
  if (inverse == 0.0f) return 0.0f;
  float best = extreme / first;
  float best_gain = 0.0f;
  for (int k = -9; k <= 9; ++k) {
    const float candidate = (first + static_cast<float>(k) * step) * inverse;
    float products = 0.0f;
    float squares = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float level = nearest(candidate * x[i]);
      products += level * x[i];
      squares += level * level;
    }
    // The error of the best scale for these levels is sum(x^2) less this.
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

// The best scale and minimum for given codes, neither below 0.
inline Affine FitCodes(const float* x, const float* codes, int count) {
  float c = 0.0f, cc = 0.0f, sum = 0.0f, cx = 0.0f;
  for (int i = 0; i < count; ++i) {
    c += codes[i];
    cc += codes[i] * codes[i];
    sum += x[i];
    cx += codes[i] * x[i];
  }
  const float n = static_cast<float>(count);
  const float determinant = n * cc - c * c;
  if (!(determinant > 0.0f)) return {0.0f, std::max(0.0f, -sum / n)};
  const float min = (c * cx - cc * sum) / determinant;
  if (min > 0.0f) return {(n * cx - c * sum) / determinant, min};
  return {cx / cc, 0.0f};
}

// Scale and minimum for codes from 0 to `most`, neither below 0.
inline Affine FitAffine(const float* x, int count, int most) {
  constexpr int kMaxCount = 32;
  const Range range = RangeOf(x, count);
  const float least = std::min(range.least, 0.0f);
  const float width = range.most - least;
  Affine best = {width / static_cast<float>(most), -least};
  float best_error = std::numeric_limits<float>::infinity();
  const float inverse = InverseScale(width);
  if (inverse == 0.0f) return {0.0f, -least};
  for (int k = -12; k <= 9; ++k) {
    const float steps = static_cast<float>(most) + 0.1f * static_cast<float>(k);
    float codes[kMaxCount];
    for (int i = 0; i < count; ++i) {
      codes[i] = static_cast<float>(
          RoundCode((x[i] - least) * inverse * steps, 0, most));
    }
    const Affine fit = FitCodes(x, codes, count);
    float error = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float off = fit.scale * codes[i] - fit.min - x[i];
      error += off * off;
    }
    if (error < best_error && fit.scale >= 0.0f) {
      best = fit;
      best_error = error;
    }
  }
  return best;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_FIT_H_
