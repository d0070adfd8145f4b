// Problems for the tests of hyper-connections: streams, products and weights,
// and what becomes of them in float64. Header only.
#ifndef INLAY_TESTS_SUPPORT_HYPER_UTIL_H_
#define INLAY_TESTS_SUPPORT_HYPER_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/hyper_connection/hyper_connection.h"
#include "tests/support/kernel_test_util.h"

namespace inlay::testing {

// kLast and kMean have no output to spread.
enum class HyperKind : uint8_t { kMixed, kIndependent, kLast, kMean };
inline constexpr HyperKind kHyperKinds[] = {HyperKind::kMixed,
                                            HyperKind::kIndependent,
                                            HyperKind::kLast, HyperKind::kMean};

class HyperProblem {
 public:
  HyperProblem(int num_streams, int64_t width, HyperKind kind, int64_t tokens,
               unsigned seed) {
    desc_.num_streams = num_streams;
    desc_.width = width;
    desc_.epsilon = 1e-3f;
    desc_.norm_epsilon = 1e-2f;
    desc_.averages = kind == HyperKind::kMean;
    desc_.only_mixes = desc_.averages || kind == HyperKind::kLast;
    desc_.independent = kind == HyperKind::kIndependent;
    if (desc_.independent) desc_.magnitude = 1.7f;
    const int64_t pad = seed % 2 == 0 ? 8 : 0;
    std::mt19937 rng(seed);
    streams_ = TestMatrix(DType::kF32, tokens, num_streams * width, pad);
    // At least one column: there are no empty matrices.
    products_ =
        TestMatrix(DType::kF32, tokens, std::max(1, desc_.num_outputs()), pad);
    y_ = TestMatrix(DType::kF32, tokens, width, pad);
    x_ = y_;
    streams_.Randomize(rng, 2.0f);
    products_.Randomize(rng, 3.0f);
    y_.Randomize(rng);
    std::normal_distribution<float> normal;
    for (int i = 0; i < desc_.num_outputs(); ++i) base_.push_back(normal(rng));
    for (int i = 0; i < 3; ++i) scale_.push_back(normal(rng));
    weights_.assign(static_cast<size_t>(tokens * desc_.num_weights()), NAN);
  }

  const HyperMixDesc& desc() const { return desc_; }
  HyperSpreadDesc spread_desc() const {
    return {desc_.num_streams, desc_.width, desc_.independent};
  }
  TestMatrix& streams() { return streams_; }
  TestMatrix& products() { return products_; }
  TestMatrix& y() { return y_; }
  TestMatrix& x() { return x_; }
  std::vector<float>& base() { return base_; }
  std::vector<float>& scale() { return scale_; }
  std::vector<float>& weights() { return weights_; }

  HyperMixParams MixParams() {
    HyperMixParams params;
    params.streams = streams_.view();
    if (!desc_.averages) {
      params.products = products_.view();
      params.base = base_.data();
      params.scale = scale_.data();
    }
    params.x = x_.view();
    params.weights = desc_.only_mixes ? nullptr : weights_.data();
    return params;
  }

  // Of a token: a, then b and c (without where independent), by the equations
  // as they are written.
  std::vector<double> Expected(int64_t token) const {
    const int n = desc_.num_streams;
    if (desc_.averages) {
      return std::vector<double>(static_cast<size_t>(n), 1.0 / n);
    }
    double squares = 0.0;
    for (int64_t i = 0; i < n * desc_.width; ++i) {
      squares += double{streams_(token, i)} * streams_(token, i);
    }
    const double rms = std::sqrt(
        squares / static_cast<double>(n * desc_.width) + desc_.norm_epsilon);
    const auto logit = [&](int i, size_t kind) {
      return products_(token, i) / rms * scale_[kind] +
             base_[static_cast<size_t>(i)];
    };
    const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
    std::vector<double> all;
    for (int j = 0; j < n; ++j) {
      all.push_back(sigmoid(logit(j, 0)) + desc_.epsilon);
    }
    if (desc_.only_mixes) return all;
    for (int j = 0; j < n; ++j) {
      all.push_back(desc_.magnitude * sigmoid(logit(n + j, 1)) +
                    (desc_.independent ? desc_.epsilon : 0.0f));
    }
    if (desc_.independent) return all;
    std::vector<std::vector<double>> c(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int j = 0; j < n; ++j) {
        c[static_cast<size_t>(i)].push_back(
            std::exp(logit(2 * n + i * n + j, 2)));
        sum += c[static_cast<size_t>(i)].back();
      }
      for (double& value : c[static_cast<size_t>(i)]) {
        value = value / sum + desc_.epsilon;
      }
    }
    for (int round = 0; round < desc_.rounds; ++round) {
      if (round > 0) {
        for (auto& row : c) {
          double sum = desc_.epsilon;
          for (const double value : row) sum += value;
          for (double& value : row) value /= sum;
        }
      }
      for (size_t j = 0; j < c.size(); ++j) {
        double sum = desc_.epsilon;
        for (const auto& row : c) sum += row[j];
        for (auto& row : c) row[j] /= sum;
      }
    }
    for (const auto& row : c) all.insert(all.end(), row.begin(), row.end());
    return all;
  }

  // Factors off by a few units in the last place of sums of a thousand.
  void ExpectMixed(double tolerance) {
    const int n = desc_.num_streams;
    for (int64_t t = 0; t < x_.rows(); ++t) {
      const std::vector<double> want = Expected(t);
      for (int64_t i = 0; i < desc_.width; ++i) {
        double sum = 0.0, size = 0.0;
        for (int j = 0; j < n; ++j) {
          const double part =
              want[static_cast<size_t>(j)] * streams_(t, j * desc_.width + i);
          sum += part;
          size += std::fabs(part);
        }
        ASSERT_NEAR(x_(t, i), sum, tolerance * size) << t << " " << i;
      }
      if (desc_.only_mixes) continue;
      for (int i = 0; i < desc_.num_weights(); ++i) {
        ASSERT_NEAR(weights_[static_cast<size_t>(t * desc_.num_weights() + i)],
                    want[static_cast<size_t>(n + i)], tolerance * 2)
            << t << " " << i;
      }
    }
    EXPECT_TRUE(x_.PaddingIsPoisoned());
  }

  // `spread`: what became of streams(), by weights().
  void ExpectSpread(const TestMatrix& spread) {
    const int n = desc_.num_streams;
    for (int64_t t = 0; t < spread.rows(); ++t) {
      const float* b = weights_.data() + t * desc_.num_weights();
      const float* c = b + n;
      for (int k = 0; k < n; ++k) {
        for (int64_t i = 0; i < desc_.width; ++i) {
          double sum = double{b[k]} * y_(t, i);
          double size = std::fabs(sum);
          for (int j = 0; j < n; ++j) {
            const double factor =
                desc_.independent ? (j == k ? 1.0 : 0.0) : double{c[j * n + k]};
            const double part = factor * streams_(t, j * desc_.width + i);
            sum += part;
            size += std::fabs(part);
          }
          ASSERT_NEAR(spread(t, k * desc_.width + i), sum,
                      (n + 1) * kUnitF32 * size)
              << t << " " << k << " " << i;
        }
      }
    }
    EXPECT_TRUE(spread.PaddingIsPoisoned());
  }

 private:
  HyperMixDesc desc_;
  TestMatrix streams_, products_, y_, x_;
  std::vector<float> base_, scale_, weights_;
};

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_HYPER_UTIL_H_
