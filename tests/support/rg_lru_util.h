// What tests of rg_lru share: inputs and the float64 reference. Header only.
#ifndef INLAY_TESTS_SUPPORT_RG_LRU_UTIL_H_
#define INLAY_TESTS_SUPPORT_RG_LRU_UTIL_H_

#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/linear_attention/rg_lru.h"
#include "tests/support/state_test_util.h"

namespace inlay::testing {

// Widths below, at and beside those of vectors and blocks.
inline std::vector<RgLruDesc> LruCases(DType activation) {
  std::vector<RgLruDesc> cases;
  for (const int64_t channels : {1, 7, 32, 45, 64, 100, 131}) {
    cases.push_back({channels, activation});
  }
  return cases;
}

struct LruInputs {
  LruInputs(const RgLruDesc& desc, int64_t tokens, unsigned seed)
      : x(Rows(desc, desc.activation, tokens, seed, 1.0f)),
        z(Rows(desc, desc.activation, tokens, seed + 1, 2.0f)),
        input(Rows(desc, DType::kF32, tokens, seed + 2, 2.0f)),
        recurrence(Rows(desc, DType::kF32, tokens, seed + 3, 2.0f)),
        rates(RandomMatrix(DType::kF32, 1, desc.channels, seed + 4, 0)) {
    // From what hardly forgets to what keeps nothing.
    for (int64_t i = 0; i < desc.channels; ++i) {
      rates.Set(0, i, -std::exp(2.0f * rates(0, i) - 1.0f));
    }
    const int64_t last = desc.channels - 1;
    if (tokens < 6) return;
    recurrence.Set(2, 0, -60.0f);
    recurrence.Set(3, last, 60.0f);
    input.Set(4, 0, 60.0f);
    input.Set(5, last, -60.0f);
  }

  static TestMatrix Rows(const RgLruDesc& desc, DType dtype, int64_t tokens,
                         unsigned seed, float deviation) {
    return RandomMatrix(dtype, tokens, desc.channels, seed, 3, deviation);
  }

  // Rows [first, first + count); no state and no y.
  RgLruParams Params(int64_t first, int64_t count) {
    const auto rows = [&](TestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    RgLruParams params;
    params.x = rows(x);
    params.z = rows(z);
    params.input = rows(input);
    params.recurrence = rows(recurrence);
    params.rates = rates.floats();
    return params;
  }

  std::vector<TestMatrix*> rows() { return {&x, &z, &input, &recurrence}; }

  TestMatrix x, z, input, recurrence, rates;
};

// y in float64, and how far float32 may be from it, to first order in its
// roundings u = 2^-24:
//
// - A sigmoid errs by 8 u of itself, the exponent l by one more. So e^l errs by
//   (9 |l| + 4) u of itself, the exponential's own two units in the last place
//   being 4 u at most.
// - 1 - e^(2 l) errs by the share y e^y / (1 - e^y) <= 1 of 2 l's 9 u and by
//   12 u of its own; its root by half of that and one more. With the sigmoid
//   and the products what a token gives errs by 24 u.
// - A state hands on what it is off, times e^l, and is rounded once.
// - gelu's sigmoid is of v, which errs by 4 u of itself and the sigmoid by as
//   much; where it is made of a tanh, 1 + tanh cancels, and z / 2 times 8 u
//   more is what it may be off.
struct LruExpected {
  std::vector<double> y, tolerance;
};

inline LruExpected LruReference(const RgLruDesc& desc, const LruInputs& in) {
  const int64_t tokens = in.x.rows();
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  LruExpected out;
  out.y.resize(static_cast<size_t>(tokens * desc.channels));
  out.tolerance = out.y;
  for (int64_t channel = 0; channel < desc.channels; ++channel) {
    double h = 0.0, off = 0.0;
    for (int64_t t = 0; t < tokens; ++t) {
      double given = double{in.x(t, channel)} * sigmoid(in.input(t, channel));
      double decay = 0.0, l = 0.0;
      if (t > 0) {
        l = in.rates(0, channel) * sigmoid(in.recurrence(t, channel));
        decay = std::exp(l);
        given *= std::sqrt(1.0 - std::exp(2.0 * l));
      }
      off = decay * (off + (9.0 * std::abs(l) + 4.0) * kUnitF32 * std::abs(h)) +
            24.0 * kUnitF32 * std::abs(given);
      h = decay * h + given;
      off += kUnitF32 * std::abs(h);
      const double z = in.z(t, channel);
      const double v =
          std::sqrt(8.0 / std::numbers::pi) * (z + 0.044715 * z * z * z);
      const double gelu = z * sigmoid(v);
      const double gelu_off =
          kUnitF32 *
          (4.0 * std::abs(z) + (4.0 * std::abs(v) + 12.0) * std::abs(gelu));
      const auto at = static_cast<size_t>(t * desc.channels + channel);
      out.y[at] = h * gelu;
      out.tolerance[at] = off * std::abs(gelu) + std::abs(h) * gelu_off +
                          kUnitF32 * std::abs(out.y[at]) + 1e-30;
    }
  }
  return out;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_RG_LRU_UTIL_H_
