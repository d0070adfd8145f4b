// The block passes and log-softmax against double precision.
#include "kernels/sample/logit_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/sampling/log_softmax.h"
#include "gtest/gtest.h"
#include "tests/core/sampling/special_floats.h"

namespace inlay {
namespace {

std::vector<float> RandomLogits(size_t size, uint32_t seed, float sd = 4) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, sd);
  std::vector<float> logits(size);
  for (float& x : logits) x = normal(rng);
  return logits;
}

TEST(LogitBlocks, WeightsAreExpWithinThreeUlp) {
  // Three units in the last place of a float: 3 * 2^-23.
  const double tolerance = 3 * 0x1p-23;
  std::vector<float> z, w;
  for (double x = 0; x > -86; x -= 0.00037) z.push_back(static_cast<float>(x));
  w.assign(z.size(), kNan);
  Weights(z.data(), static_cast<int64_t>(z.size()), {0, 1}, w.data());
  double worst = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    const double exact = std::exp(double{z[i]});
    worst = std::max(worst, std::abs(w[i] - exact) / exact);
  }
  EXPECT_LT(worst, tolerance);
  EXPECT_EQ(w[0], 1.0f);
}

TEST(LogitBlocks, WeightsAtTheEdges) {
  const float x[] = {0, -85.9f, -86.1f, -1e30f, -kInf};
  float w[5] = {kNan, kNan, kNan, kNan, kNan};
  Weights(x, 5, {0, 1}, w);
  EXPECT_EQ(w[0], 1.0f);
  EXPECT_GT(w[1], 0.0f);
  for (int i = 2; i < 5; ++i) EXPECT_EQ(w[i], 0.0f) << i;
}

TEST(LogitBlocks, ScanAndArgMaxAtEverySize) {
  for (size_t size = 1; size <= 200; ++size) {
    std::vector<float> logits = RandomLogits(size, size);
    for (float& x : logits) x = std::round(x);  // ties
    const LogitBlocks blocks = ScanLogits(logits);
    const auto max = std::max_element(logits.begin(), logits.end());
    ASSERT_TRUE(blocks.valid);
    ASSERT_EQ(blocks.max, *max) << size;
    ASSERT_EQ(ArgMax(logits, blocks), max - logits.begin()) << size;
    ASSERT_EQ(blocks.block_max.size(), (size + 63) / 64);
  }
}

TEST(LogitBlocks, InvalidLogitsAreFoundAnywhere) {
  for (size_t size : {1, 3, 64, 65, 130}) {
    for (size_t at = 0; at < size; ++at) {
      for (float bad : {kNan, -kNan, kInf}) {
        std::vector<float> logits(size, -kInf);
        logits[at] = bad;
        ASSERT_FALSE(ScanLogits(logits).valid) << size << " " << at;
        ASSERT_EQ(FirstInvalidLogit(logits), static_cast<int64_t>(at));
      }
    }
  }
  EXPECT_EQ(FirstInvalidLogit(std::vector<float>{0, -kInf}), -1);
  EXPECT_TRUE(ScanLogits(std::vector<float>(70, -kInf)).valid);
  EXPECT_EQ(ScanLogits(std::vector<float>(70, -kInf)).max, -kInf);
}

TEST(LogitBlocks, LowerBoundOfTopIsReachedByCountLogits) {
  const std::vector<float> logits = RandomLogits(5000, 3);
  const LogitBlocks blocks = ScanLogits(logits);
  for (int64_t count : {1, 2, 10, 78, 79, 80, 5000, 6000}) {
    const float low = LowerBoundOfTop(blocks, count);
    int64_t reached = 0;
    ForEachLogitFrom(logits, blocks, low, [&](int64_t, float) { ++reached; });
    EXPECT_GE(reached, std::min<int64_t>(count, 5000)) << count;
  }
}

double NaiveLogNormalizer(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(x - max);
  return max + std::log(sum);
}

TEST(LogSoftmax, EqualsDoublePrecision) {
  for (size_t size : {1, 5, 63, 64, 65, 1000, 50257}) {
    const std::vector<float> logits = RandomLogits(size, size);
    const double norm = NaiveLogNormalizer(logits);
    for (size_t t = 0; t < size; t += 1 + size / 50) {
      const double exact = logits[t] - norm;
      // The sum: 16 float additions a lane and a weight of 3 ulp, at most 19
      // roundings of 2^-23; the result: one rounding to float.
      const double tolerance = 19 * 0x1p-23 + std::abs(exact) * 0x1p-24;
      ASSERT_NEAR(LogProbOf(logits, static_cast<int32_t>(t)), exact, tolerance)
          << size << " " << t;
    }
  }
}

TEST(LogSoftmax, StableAtExtremes) {
  EXPECT_EQ(LogProbOf(std::vector<float>{3e38f, -3e38f}, 0), 0.0f);
  EXPECT_EQ(LogProbOf(std::vector<float>{-3e38f, -3e38f}, 1),
            static_cast<float>(-std::log(2.0)));
  EXPECT_EQ(LogProbOf(std::vector<float>{1, -kInf}, 1), -kInf);
  EXPECT_TRUE(std::isnan(LogProbOf(std::vector<float>{1, kNan}, 0)));
  EXPECT_TRUE(std::isnan(LogProbOf(std::vector<float>{1, kInf}, 0)));
  EXPECT_TRUE(std::isnan(LogProbOf(std::vector<float>{-kInf, -kInf}, 0)));
  EXPECT_TRUE(std::isnan(LogProbOf(std::vector<float>{1}, 1)));
  EXPECT_TRUE(std::isnan(LogProbOf(std::vector<float>{1}, -1)));
  EXPECT_TRUE(std::isnan(LogProbOf({}, 0)));
}

TEST(LogSoftmax, TopLogprobsAreSortedWithTiesByLowerId) {
  for (int32_t count : {0, 1, 5, 20, 300, 1024}) {
    std::vector<float> logits = RandomLogits(700, 11);
    for (float& x : logits) x = std::round(x);
    logits[3] = logits[500] = -kInf;
    const LogitBlocks blocks = ScanLogits(logits);
    const LogNormalizer norm = LogNormalizerOf(logits, blocks);
    const auto top = TopLogprobs(logits, blocks, norm, count);
    std::vector<int32_t> order(700);
    for (int32_t i = 0; i < 700; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[a] > logits[b];
    });
    ASSERT_EQ(top.size(), std::min(count, 698)) << count;
    for (size_t i = 0; i < top.size(); ++i) {
      ASSERT_EQ(top[i].token, order[i]) << count << " " << i;
      ASSERT_FLOAT_EQ(top[i].logprob, norm.LogProb(logits[order[i]]));
    }
  }
}

}  // namespace
}  // namespace inlay
