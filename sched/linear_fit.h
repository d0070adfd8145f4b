// LinearFit: a non-negative linear model learned online, its relative errors
// weighed alike. Plain arithmetic; knows nothing of what is modelled.
// Source: least squares with exponential forgetting (Ljung, "System
// Identification", 2nd edition, section 11.2), solved anew each time: with four
// weights that is cheap, and the constraint stays exact.
#ifndef INLAY_SCHED_LINEAR_FIT_H_
#define INLAY_SCHED_LINEAR_FIT_H_

#include <array>
#include <cstdint>

namespace inlay {

// Thread-compatible.
class LinearFit {
 public:
  static constexpr int kSize = 4;
  using Vector = std::array<double, kSize>;

  // Predicts by `initial` (>= 0) at first. `scale` (> 0): the magnitude of each
  // weight, by which the first samples divide the error among them.
  LinearFit(const Vector& initial, const Vector& scale);

  // >= 0.
  const Vector& weights() const { return weights_; }
  double Predict(const Vector& x) const;
  // How little is known about x: one over the number of recent samples that
  // speak of it; far above 1 when there was none.
  double Leverage(const Vector& x) const;

  // x >= 0 and finite, x[0] > 0 always; y >= 0 and finite.
  void Observe(const Vector& x, double y);
  // As though every y had been `factor` (> 0) times what it was.
  void Rescale(double factor);

 private:
  using Matrix = std::array<Vector, kSize>;

  // x in units of scale_ and of the prediction there, so that a residual of 1
  // is an error of 100 %.
  Vector Normalise(const Vector& x, double* prediction) const;
  void Fit();

  Vector scale_;
  Vector weights_;
  // The fit minimises w'Aw / 2 - b'w over w >= 0, w in units of scale_.
  Matrix information_;
  Vector target_;
};

}  // namespace inlay

#endif  // INLAY_SCHED_LINEAR_FIT_H_
