// What tests of selective_scan share: inputs and the float64 reference. Header
// only.
#ifndef INLAY_TESTS_SUPPORT_SELECTIVE_SCAN_UTIL_H_
#define INLAY_TESTS_SUPPORT_SELECTIVE_SCAN_UTIL_H_

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/linear_attention/selective_scan.h"
#include "tests/support/state_test_util.h"

namespace inlay::testing {

// Widths below, at and beside those of vectors and blocks, sizes of states
// around those of lanes.
inline std::vector<SelectiveScanDesc> ScanCases(DType activation) {
  std::vector<SelectiveScanDesc> cases;
  for (const auto& [channels, size] : {std::pair{1, 1},
                                       {7, 3},
                                       {32, 16},
                                       {45, 16},
                                       {100, 17},
                                       {64, 4},
                                       {24, 64},
                                       {9, 100},
                                       {36, 128}}) {
    cases.push_back({channels, size, activation});
  }
  return cases;
}

struct ScanInputs {
  ScanInputs(const SelectiveScanDesc& desc, int64_t tokens, unsigned seed)
      : x(Rows(desc, tokens, desc.channels, seed)),
        z(Rows(desc, tokens, desc.channels, seed + 1)),
        step(RandomMatrix(DType::kF32, tokens, desc.channels, seed + 2, 4,
                          2.0f)),
        b(Rows(desc, tokens, desc.state_size, seed + 3)),
        c(Rows(desc, tokens, desc.state_size, seed + 4)),
        rates(RandomMatrix(DType::kF32, desc.state_size, desc.channels,
                           seed + 5, 0)),
        skip(RandomMatrix(DType::kF32, 1, desc.channels, seed + 6, 0)) {
    for (int64_t r = 0; r < rates.rows(); ++r) {
      for (int64_t i = 0; i < rates.cols(); ++i) {
        rates.Set(r, i, -std::exp(1.5f * rates(r, i)));
      }
    }
    // Steps of next to nothing, and such that nothing is left of the past.
    step.Set(0, 0, -30.0f);
    if (tokens > 2) step.Set(2, desc.channels - 1, 30.0f);
  }

  // Rows that vectors can be read from, where their width allows it.
  static TestMatrix Rows(const SelectiveScanDesc& desc, int64_t tokens,
                         int64_t width, unsigned seed) {
    return RandomMatrix(desc.activation, tokens, width, seed,
                        width % 8 == 0 ? 8 : 3);
  }

  // Rows [first, first + count); no state and no y.
  SelectiveScanParams Params(int64_t first, int64_t count) {
    const auto rows = [&](TestMatrix& matrix) {
      return matrix.view().RowSlice(first, count);
    };
    SelectiveScanParams params;
    params.x = rows(x);
    params.step = rows(step);
    params.b = rows(b);
    params.c = rows(c);
    params.z = rows(z);
    params.rates = rates.floats();
    params.skip = skip.floats();
    return params;
  }

  TestMatrix x, z, step, b, c, rates, skip;
};

// y in float64, and for each element what errors are measured in: the sum of
// its terms' magnitudes.
inline Expected ScanReference(const SelectiveScanDesc& desc,
                              const ScanInputs& in) {
  const int64_t tokens = in.x.rows();
  Expected out;
  out.y.resize(static_cast<size_t>(tokens * desc.channels));
  out.magnitude = out.y;
  for (int64_t channel = 0; channel < desc.channels; ++channel) {
    std::vector<double> s(static_cast<size_t>(desc.state_size)), m = s;
    for (int64_t t = 0; t < tokens; ++t) {
      const double step = std::log1p(std::exp(double{in.step(t, channel)}));
      const double x = in.x(t, channel), z = in.z(t, channel);
      double y = in.skip(0, channel) * x, magnitude = std::abs(y);
      for (size_t i = 0; i < s.size(); ++i) {
        const auto element = static_cast<int64_t>(i);
        const double decay = std::exp(step * in.rates(element, channel));
        const double given = step * x * in.b(t, element);
        s[i] = decay * s[i] + given;
        m[i] = decay * m[i] + std::abs(given);
        y += s[i] * in.c(t, element);
        magnitude += m[i] * std::abs(in.c(t, element));
      }
      const double gate = z / (1.0 + std::exp(-z));
      const auto at = static_cast<size_t>(t * desc.channels + channel);
      out.y[at] = y * gate;
      out.magnitude[at] = magnitude * std::abs(gate);
    }
  }
  return out;
}

// In float32's roundings. A sum errs by one an element of the state; a term by
// a few of its own (step, product, gate) and by some for each token since: the
// decay's exponential (two units in the last place) and its exponent a, whose
// own roundings (step: up to five, rate, product) a e^-a <= 0.37 turns into
// three, and the state's.
inline double ScanRoundings(const SelectiveScanDesc& desc, int64_t tokens) {
  return kUnitF32 * static_cast<double>(desc.state_size + 10 * tokens + 20);
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_SELECTIVE_SCAN_UTIL_H_
