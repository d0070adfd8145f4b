// Problems for the tests of AltUp's ops, and what becomes of them in float64.
#ifndef INLAY_TESTS_KERNELS_ALTUP_TEST_H_
#define INLAY_TESTS_KERNELS_ALTUP_TEST_H_

#include <cmath>
#include <random>
#include <vector>

#include "kernels/altup/altup.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

// Of factors, as a part of the sum of a row of coefs: a product with the router
// is off by (width / lanes + lanes) / 2 roundings of terms whose sum is a few
// units, halves of which tanh hands on; 2056 / 8 lanes at most here.
inline constexpr double kAltUpTolerance = 3e-5;

class AltUpProblem {
 public:
  AltUpProblem(int num_streams, int active, int64_t width, int64_t tokens,
               unsigned seed)
      : desc_{num_streams, width, active, 1e-2f} {
    std::mt19937 rng(seed);
    const int64_t pad = seed % 2 == 0 ? 8 : 0;
    const int64_t n = num_streams;
    streams_ = TestMatrix(DType::kF32, tokens, n * width, pad);
    x_ = TestMatrix(DType::kF32, tokens, width, pad);
    streams_.Randomize(rng, 2.0f);
    x_.Randomize(rng, 1.5f);
    const auto fill = [&](int64_t count, float deviation) {
      std::normal_distribution<float> normal(0.0f, deviation);
      std::vector<float> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(normal(rng));
      return values;
    };
    // What it gives is divided by the width.
    router_ = fill(n * width, 2.0f * std::sqrt(static_cast<float>(width)));
    norm_ = fill(width, 1.0f);
    predict_ = fill(n * n * n, 0.5f);
    correct_ = fill(n * n, 0.5f);
    scale_ = fill(width, 1.0f);
  }

  const AltUpDesc& desc() const { return desc_; }
  TestMatrix& streams() { return streams_; }
  TestMatrix& x() { return x_; }
  const std::vector<float>& router() const { return router_; }
  const std::vector<float>& norm() const { return norm_; }
  const std::vector<float>& predict() const { return predict_; }
  const std::vector<float>& correct() const { return correct_; }
  const std::vector<float>& scale() const { return scale_; }

  // `streams`, `x`: what altup_predict made of streams().
  void ExpectPredicted(const TestMatrix& streams, const TestMatrix& x) const {
    const int n = desc_.num_streams;
    std::vector<std::vector<double>> factors;
    for (int64_t t = 0; t < x.rows(); ++t) {
      factors.push_back(
          Factors(streams_, t, desc_.active * desc_.width, predict_, n * n));
    }
    double size = 0.0;
    const auto want = [&](int64_t t, int64_t c) {
      const auto k = static_cast<size_t>(c / desc_.width);
      double sum = streams_(t, c);
      size = std::fabs(sum);
      for (int j = 0; j < n; ++j) {
        const double part = streams_(t, j * desc_.width + c % desc_.width);
        sum += factors[static_cast<size_t>(t)]
                      [k * static_cast<size_t>(n) + static_cast<size_t>(j)] *
               part;
        size += std::fabs(part);
      }
      return sum;
    };
    ExpectClose(streams, want,
                [&](int64_t, int64_t) { return kAltUpTolerance * size; });
    ExpectActive(streams, x, nullptr);
  }

  // `streams`, `x`: what altup_correct made of streams() and x().
  void ExpectCorrected(const TestMatrix& streams, const TestMatrix& x,
                       const float* scale) const {
    std::vector<std::vector<double>> factors;
    for (int64_t t = 0; t < x.rows(); ++t) {
      factors.push_back(Factors(x_, t, 0, correct_, desc_.num_streams));
    }
    double size = 0.0;
    const auto want = [&](int64_t t, int64_t c) {
      const int64_t i = c % desc_.width;
      const double old = streams_(t, desc_.active * desc_.width + i);
      size = std::fabs(old) + std::fabs(x_(t, i)) + std::fabs(streams_(t, c));
      const auto k = static_cast<size_t>(c / desc_.width);
      return streams_(t, c) +
             (1.0 + factors[static_cast<size_t>(t)][k]) * (x_(t, i) - old);
    };
    ExpectClose(streams, want,
                [&](int64_t, int64_t) { return kAltUpTolerance * size; });
    ExpectActive(streams, x, scale);
  }

 private:
  // (coefs m(v))[0 .. count), v the row's columns from `first` on.
  std::vector<double> Factors(const TestMatrix& rows, int64_t row,
                              int64_t first, const std::vector<float>& coefs,
                              int count) const {
    const int n = desc_.num_streams;
    double squares = 0.0;
    for (int64_t i = 0; i < desc_.width; ++i) {
      squares += std::pow(double{rows(row, first + i)}, 2);
    }
    const auto width = static_cast<double>(desc_.width);
    const double rms = std::sqrt(squares / width + desc_.norm_epsilon);
    std::vector<double> m;
    for (int j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t i = 0; i < desc_.width; ++i) {
        sum += rows(row, first + i) / rms * norm_[static_cast<size_t>(i)] /
               width * router_[static_cast<size_t>(j * desc_.width + i)];
      }
      m.push_back(std::tanh(sum));
    }
    std::vector<double> factors;
    for (int i = 0; i < count; ++i) {
      double sum = 0.0;
      for (int j = 0; j < n; ++j) {
        sum +=
            coefs[static_cast<size_t>(i * n + j)] * m[static_cast<size_t>(j)];
      }
      factors.push_back(sum);
    }
    return factors;
  }

  // x is the active stream, times `scale`, to the last bit.
  void ExpectActive(const TestMatrix& streams, const TestMatrix& x,
                    const float* scale) const {
    for (int64_t t = 0; t < x.rows(); ++t) {
      for (int64_t i = 0; i < desc_.width; ++i) {
        const float active = streams(t, desc_.active * desc_.width + i);
        ASSERT_EQ(x(t, i), scale == nullptr ? active : active * scale[i])
            << t << " " << i;
      }
    }
    EXPECT_TRUE(x.PaddingIsPoisoned());
  }

  AltUpDesc desc_;
  TestMatrix streams_, x_;
  std::vector<float> router_, norm_, predict_, correct_, scale_;
};

// match_magnitude of a row in float64.
inline double MatchFactor(const TestMatrix& x, const TestMatrix& target,
                          double epsilon, int64_t row) {
  double own = 0.0, wanted = 0.0;
  for (int64_t i = 0; i < x.cols(); ++i) {
    own += std::pow(double{x(row, i)}, 2);
    wanted += std::pow(double{target(row, i)}, 2);
  }
  const auto width = static_cast<double>(x.cols());
  return std::sqrt(wanted / width) / std::sqrt(std::max(own / width, epsilon));
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_KERNELS_ALTUP_TEST_H_
