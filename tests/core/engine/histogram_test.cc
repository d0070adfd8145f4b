#include "core/engine/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace inlay {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kRange = uint64_t{1} << Histogram::kOctaves;

TEST(HistogramTest, BucketsJoinWithoutGapAndHoldTheirBounds) {
  EXPECT_EQ(Histogram::LowerBound(0), 0u);
  for (size_t i = 0; i + 1 < Histogram::kNumBuckets; ++i) {
    const uint64_t low = Histogram::LowerBound(i) + 1;
    const uint64_t high = Histogram::UpperBound(i);
    ASSERT_LE(low, high) << i;
    ASSERT_EQ(Histogram::BucketOf(low), i);
    ASSERT_EQ(Histogram::BucketOf(high), i);
    ASSERT_EQ(Histogram::BucketOf(high + 1), i + 1);
    ASSERT_EQ(Histogram::LowerBound(i + 1), high);
    ASSERT_LE((high - low + 1) * 16, std::max<uint64_t>(low + 15, 16)) << i;
  }
}

TEST(HistogramTest, Edges) {
  EXPECT_EQ(Histogram::BucketOf(0), 0u);
  EXPECT_EQ(Histogram::BucketOf(1), 0u);
  EXPECT_EQ(Histogram::BucketOf(2), 1u);
  EXPECT_EQ(Histogram::BucketOf(kRange), Histogram::kNumBuckets - 2);
  EXPECT_EQ(Histogram::BucketOf(kRange + 1), Histogram::kNumBuckets - 1);
  EXPECT_EQ(Histogram::BucketOf(kMost), Histogram::kNumBuckets - 1);
  EXPECT_EQ(Histogram::UpperBound(Histogram::kNumBuckets - 2), kRange);
  EXPECT_EQ(Histogram::UpperBound(Histogram::kNumBuckets - 1), kMost);
  // An hour is in range.
  EXPECT_LT(uint64_t{3600} * 1000000, kRange);
  // Powers of two end a bucket: the Prometheus text counts up to them.
  for (int i = 0; i <= Histogram::kOctaves; ++i) {
    const uint64_t power = uint64_t{1} << i;
    EXPECT_EQ(Histogram::UpperBound(Histogram::BucketOf(power)), power);
  }
}

TEST(HistogramTest, Empty) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.sum(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
}

TEST(HistogramTest, OneValueIsEveryQuantile) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{37},
                               uint64_t{123456789}, kRange, kRange * 5}) {
    Histogram histogram;
    histogram.Add(value);
    histogram.Add(value);
    for (const double p : {-1.0, 0.0, 0.3, 0.5, 0.99, 1.0, 7.0}) {
      EXPECT_EQ(histogram.Quantile(p), static_cast<double>(value)) << p;
    }
    EXPECT_EQ(histogram.sum(), 2 * value);
    EXPECT_EQ(histogram.min(), value);
    EXPECT_EQ(histogram.max(), value);
  }
}

TEST(HistogramTest, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 31; ++value) histogram.Add(value);
  for (int i = 0; i <= 30; ++i) {
    EXPECT_NEAR(histogram.Quantile(i / 30.0), i + 1, 1.0) << i;
  }
  EXPECT_EQ(histogram.Quantile(0), 1);
  EXPECT_EQ(histogram.Quantile(0.5), 16);
  EXPECT_EQ(histogram.Quantile(1), 31);
  EXPECT_EQ(histogram.Quantile(std::nan("")), 1);
}

TEST(HistogramTest, SumStopsAtItsLargest) {
  Histogram histogram;
  histogram.Add(kMost);
  histogram.Add(kMost);
  EXPECT_EQ(histogram.sum(), kMost);
  Histogram other = histogram;
  other.Merge(histogram);
  EXPECT_EQ(other.sum(), kMost);
  EXPECT_EQ(other.count(), 4u);
}

// Quantiles against the sorted values: off by a bucket's width at most.
TEST(HistogramTest, QuantilesFollowTheValues) {
  for (const double sigma : {0.1, 1.0, 2.5}) {
    std::mt19937_64 random(7);
    std::lognormal_distribution<double> values(8.0, sigma);
    Histogram histogram;
    std::vector<double> sorted;
    for (int i = 0; i < 20000; ++i) {
      const auto value = static_cast<uint64_t>(values(random)) + 1;
      histogram.Add(value);
      sorted.push_back(static_cast<double>(value));
    }
    std::sort(sorted.begin(), sorted.end());
    double last = 0;
    for (double p = 0; p <= 1.0; p += 1.0 / 1024) {
      const double exact = sorted[static_cast<size_t>(
          std::floor(p * static_cast<double>(sorted.size() - 1)))];
      const double got = histogram.Quantile(p);
      ASSERT_NEAR(got, exact, exact / 16 + 1)
          << "sigma " << sigma << " p " << p;
      ASSERT_GE(got, last);
      last = got;
    }
    EXPECT_EQ(histogram.Quantile(0), sorted.front());
    EXPECT_EQ(histogram.Quantile(1), sorted.back());
  }
}

TEST(HistogramTest, MergeIsAddingBoth) {
  std::mt19937_64 random(11);
  Histogram a, b, both;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random() >> (random() % 64);
    (i % 3 == 0 ? a : b).Add(value);
    both.Add(value);
  }
  Histogram empty;
  a.Merge(empty);
  a.Merge(b);
  empty.Merge(a);
  for (const Histogram* merged : {&a, &empty}) {
    EXPECT_EQ(merged->count(), both.count());
    EXPECT_EQ(merged->sum(), both.sum());
    EXPECT_EQ(merged->min(), both.min());
    EXPECT_EQ(merged->max(), both.max());
    for (size_t i = 0; i < Histogram::kNumBuckets; ++i) {
      ASSERT_EQ(merged->bucket(i), both.bucket(i)) << i;
    }
  }
}

}  // namespace
}  // namespace inlay
