#include "sched/linear_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace inlay {
namespace {

constexpr int kSize = LinearFit::kSize;
constexpr uint32_t kAll = (1u << kSize) - 1;

// A sample's weight shrinks by this with each one after it: some 70 count.
constexpr double kMemory = 0.985;
// What the weights as they are count as, in samples. One real sample outweighs
// it; where there are none any more, it keeps what was learned.
constexpr double kAnchor = 0.01;
// Keeps relative errors defined where the prediction is 0.
constexpr double kMinPrediction = 1e-3;

// Solves A_ss w_s = b_s for the subset s, w = 0 elsewhere, by Cholesky's
// decomposition. A is positive definite but for rounding, which must not make a
// pivot vanish or negative.
LinearFit::Vector Solve(const std::array<LinearFit::Vector, kSize>& a,
                        const LinearFit::Vector& b, uint32_t subset) {
  std::array<LinearFit::Vector, kSize> lower = {};
  LinearFit::Vector w = {};
  for (int i = 0; i < kSize; ++i) {
    if (!(subset >> i & 1)) continue;
    w[i] = b[i];
    for (int j = 0; j < i; ++j) {
      if (!(subset >> j & 1)) continue;
      double sum = a[i][j];
      for (int k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
      lower[i][j] = sum / lower[j][j];
      w[i] -= lower[i][j] * w[j];
    }
    double pivot = a[i][i];
    for (int k = 0; k < i; ++k) pivot -= lower[i][k] * lower[i][k];
    lower[i][i] = std::sqrt(std::max(pivot, 1e-10 * a[i][i]));
    w[i] /= lower[i][i];
  }
  for (int i = kSize - 1; i >= 0; --i) {
    if (!(subset >> i & 1)) continue;
    for (int k = i + 1; k < kSize; ++k) w[i] -= lower[k][i] * w[k];
    w[i] /= lower[i][i];
  }
  return w;
}

double Dot(const LinearFit::Vector& a, const LinearFit::Vector& b) {
  double sum = 0;
  for (int i = 0; i < kSize; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

LinearFit::LinearFit(const Vector& initial, const Vector& scale)
    : scale_(scale), weights_(initial), information_{} {
  for (int i = 0; i < kSize; ++i) {
    information_[i][i] = kAnchor;
    target_[i] = kAnchor * initial[i] / scale[i];
  }
}

double LinearFit::Predict(const Vector& x) const { return Dot(weights_, x); }

LinearFit::Vector LinearFit::Normalise(const Vector& x,
                                       double* prediction) const {
  *prediction = std::max(Predict(x), kMinPrediction);
  Vector unit;
  for (int i = 0; i < kSize; ++i) unit[i] = x[i] * scale_[i] / *prediction;
  return unit;
}

double LinearFit::Leverage(const Vector& x) const {
  double prediction;
  const Vector unit = Normalise(x, &prediction);
  return Dot(unit, Solve(information_, unit, kAll));
}

void LinearFit::Observe(const Vector& x, double y) {
  double prediction;
  const Vector unit = Normalise(x, &prediction);
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      information_[i][j] = kMemory * information_[i][j] + unit[i] * unit[j];
    }
    target_[i] = kMemory * target_[i] + unit[i] * y / prediction;
    constexpr double kRenewed = (1 - kMemory) * kAnchor;
    information_[i][i] += kRenewed;
    target_[i] += kRenewed * weights_[i] / scale_[i];
  }
  Fit();
}

void LinearFit::Rescale(double factor) {
  for (int i = 0; i < kSize; ++i) {
    weights_[i] *= factor;
    target_[i] *= factor;
  }
}

void LinearFit::Fit() {
  // Four weights have 15 subsets that may be the positive ones: trying them all
  // is exact and, at some 2 us when the full one does not do, cheap enough.
  double best = std::numeric_limits<double>::infinity();
  Vector chosen = {};
  for (uint32_t subset = kAll; subset > 0; --subset) {
    const Vector w = Solve(information_, target_, subset);
    if (*std::min_element(w.begin(), w.end()) < 0) continue;
    const double objective = -Dot(target_, w);  // twice the minimum over it
    if (objective >= best) continue;
    best = objective;
    chosen = w;
    if (subset == kAll) break;
  }
  for (int i = 0; i < kSize; ++i) weights_[i] = chosen[i] * scale_[i];
}

}  // namespace inlay
