// sparse_gate in float64: what the rows of both devices are held to.
#ifndef INLAY_TESTS_KERNELS_SPARSE_GATE_TEST_H_
#define INLAY_TESTS_KERNELS_SPARSE_GATE_TEST_H_

#include <algorithm>
#include <cmath>

#include "kernels/activation/sparse_gate.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

// Where row `row` is cut.
inline double GateCut(const TestMatrix& x, int64_t row, double deviations) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < x.cols(); ++i) sum += x(row, i);
  const double mean = sum / static_cast<double>(x.cols());
  for (int64_t i = 0; i < x.cols(); ++i) {
    squares += std::pow(x(row, i) - mean, 2);
  }
  return mean + deviations * std::sqrt(squares / static_cast<double>(x.cols()));
}

// Values far from 0 beside a small deviation: one pass over squares would lose
// it. One row's values are all equal.
inline void DrawGates(std::mt19937& rng, TestMatrix* x) {
  x->Randomize(rng, 2.0f);
  for (int64_t i = 0; i < x->cols(); ++i) {
    x->Set(1, i, 30.0f + 0.25f * (*x)(1, i));
    x->Set(2, i, 1.5f);
  }
}

// A sum is off by (width / lanes + lanes) / 2 roundings of values of its size:
// 2056 / 8 at most, of 32 at most.
inline double GateTolerance(double x) {
  return kUnitF32 * 130 * std::max(std::fabs(x), 8.0);
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_KERNELS_SPARSE_GATE_TEST_H_
