#include "kernels/cuda_divisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>

namespace inlay {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

void Check(const LaunchDivisor& by, int divisor, int64_t x) {
  const int n = static_cast<int>(std::clamp<int64_t>(x, 0, kMost));
  const int quotient = by.Quotient(n);
  ASSERT_EQ(quotient, n / divisor) << n << " by " << divisor;
  ASSERT_EQ(by.Remainder(n, quotient), n % divisor) << n << " by " << divisor;
}

TEST(LaunchDivisorTest, DividesAsDivisionDoes) {
  const LaunchDivisor one;
  Check(one, 1, kMost);
  std::mt19937 rng(5);
  const auto check = [&](int divisor) {
    const LaunchDivisor by(divisor);
    for (const int64_t x : {0, 1, divisor - 1, divisor, kMost - 1, kMost}) {
      Check(by, divisor, x);
    }
    // Where a quotient begins and the one before ends.
    for (int i = 0; i < 50; ++i) {
      const int64_t multiple =
          static_cast<int64_t>(rng() % (kMost / divisor + 1u)) * divisor;
      for (int d = -1; d <= 1; ++d) Check(by, divisor, multiple + d);
    }
  };
  for (int divisor = 1; divisor <= 4096; ++divisor) check(divisor);
  for (int i = 0; i < 1000; ++i) check(static_cast<int>(rng() % kMost) + 1);
  for (int shift = 12; shift < 31; ++shift) {
    for (int d = -1; d <= 1; ++d) check((1 << shift) + d);
  }
  check(kMost);
}

}  // namespace
}  // namespace inlay
