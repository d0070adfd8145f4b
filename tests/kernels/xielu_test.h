// xielu in float64: what the rows of both devices are held to.
#ifndef INLAY_TESTS_KERNELS_XIELU_TEST_H_
#define INLAY_TESTS_KERNELS_XIELU_TEST_H_

#include <algorithm>
#include <cmath>

#include "kernels/activation/xielu.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

// Of a published layer; with a cut that shows; with one above 0, which is none.
inline constexpr XieluNumbers kXieluNumbers[] = {{0.8f, 0.9f, 0.5f, -1e-6f},
                                                 {1.3f, 0.7f, -0.2f, -0.3f},
                                                 {0.1f, 2.5f, 0.4f, 0.25f}};

inline double XieluReference(const XieluNumbers& numbers, double x) {
  if (x > 0) return numbers.alpha_p * x * x + numbers.beta * x;
  const double cut = std::min(x, double{numbers.eps});
  return numbers.alpha_n * (std::expm1(cut) - x) + numbers.beta * x;
}

// Off by a few units of each of its terms.
inline double XieluTolerance(const XieluNumbers& numbers, double x) {
  const double least = std::min(x, std::min(double{numbers.eps}, 0.0));
  const double curve =
      x > 0 ? numbers.alpha_p * x * x : numbers.alpha_n * std::abs(least);
  return kUnitF32 * 8 * (curve + std::abs(numbers.beta * x)) + 1e-30;
}

// What shows where pieces meet, and ends; the rest as it is.
inline void SetXieluEdges(TestMatrix* x) {
  const float edges[] = {0.0f, -0.0f, -1e-7f, -0.5f, -0.4999f, -0.3f, -100.0f};
  for (int64_t c = 0; c < std::min<int64_t>(x->cols(), 7); ++c) {
    x->Set(0, c, edges[c]);
  }
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_KERNELS_XIELU_TEST_H_
