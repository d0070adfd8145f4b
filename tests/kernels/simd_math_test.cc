// The vector functions of simd_math-inl.h, on every target that this machine
// has, against float64.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/simd_math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {

template <typename Fn>
void Map(const float* x, float* y, size_t count, Fn fn) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(fn(LoadWide(x + i)), DF(), y + i);
  }
  if (i < count)
    StoreTail(fn(LoadWideTail(x + i, count - i)), y + i, count - i);
}

void MapExp(const float* x, float* y, size_t count) {
  Map(x, y, count, [](VF v) HWY_ATTR { return ExpNonPositive(v); });
}
void MapOneMinusExp(const float* x, float* y, size_t count) {
  Map(x, y, count, [](VF v) HWY_ATTR { return OneMinusExp(v); });
}
void MapSigmoid(const float* x, float* y, size_t count) {
  Map(x, y, count, [](VF v) HWY_ATTR { return Sigmoid(v); });
}
void MapSoftplus(const float* x, float* y, size_t count) {
  Map(x, y, count, [](VF v) HWY_ATTR { return Softplus(v); });
}
void MapTanh(const float* x, float* y, size_t count) {
  Map(x, y, count, [](VF v) HWY_ATTR { return Tanh(v); });
}
void MapOnePlusErf(const float* x, float* y, size_t count) {
  Map(x, y, count, [](VF v) HWY_ATTR { return OnePlusErf(v); });
}

// sums[0..3] of four vectors in `x`, and how many lanes each has.
size_t Sums4(const float* x, float* sums) {
  StoreSums4(LoadWide(x), LoadWide(x + kLanes), LoadWide(x + 2 * kLanes),
             LoadWide(x + 3 * kLanes), sums);
  return kLanes;
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

HWY_EXPORT(MapExp);
HWY_EXPORT(MapOneMinusExp);
HWY_EXPORT(MapSigmoid);
HWY_EXPORT(MapSoftplus);
HWY_EXPORT(MapTanh);
HWY_EXPORT(MapOnePlusErf);
HWY_EXPORT(Sums4);

using ::inlay::testing::OnEverySimdTarget;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Sweep(float low, float high, int count) {
  std::vector<float> x;
  for (int i = 0; i <= count; ++i) {
    x.push_back(low + (high - low) * static_cast<float>(i) /
                          static_cast<float>(count));
  }
  return x;
}

double Ulp(double value) {
  const auto magnitude = std::abs(static_cast<float>(value));
  return static_cast<double>(std::nextafter(magnitude, kInfinity) - magnitude);
}

template <typename Map, typename Reference>
void ExpectUlps(Map map, Reference reference, const std::vector<float>& x,
                double most) {
  std::vector<float> y(x.size());
  map(x.data(), y.data(), x.size());
  double worst = 0.0;
  float where = 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = reference(static_cast<double>(x[i]));
    const double error = std::abs(y[i] - want) / Ulp(want);
    if (!(error <= worst)) {
      worst = error;
      where = x[i];
    }
  }
  EXPECT_LE(worst, most) << "at " << where;
}

TEST(SimdMathTest, Exp) {
  OnEverySimdTarget([] {
    const auto map = [](auto... args) {
      HWY_DYNAMIC_DISPATCH(MapExp)(args...);
    };
    const auto exp = [](double x) { return std::exp(x); };
    ExpectUlps(map, exp, Sweep(-87.3f, 0.0f, 200000), 2.0);
    ExpectUlps(map, exp, Sweep(-1.0f, 0.0f, 100000), 2.0);
    const std::vector<float> x = {0.0f,   -0.0f,      -87.4f, -100.0f,
                                  -1e30f, -kInfinity, kNan};
    std::vector<float> y(x.size());
    map(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 1.0f);
    for (size_t i = 2; i < 6; ++i) EXPECT_EQ(y[i], 0.0f) << x[i];
    EXPECT_TRUE(std::isnan(y[6]));
  });
}

TEST(SimdMathTest, OneMinusExp) {
  OnEverySimdTarget([] {
    const auto map = [](auto... args) {
      HWY_DYNAMIC_DISPATCH(MapOneMinusExp)(args...);
    };
    const auto reference = [](double x) { return -std::expm1(x); };
    ExpectUlps(map, reference, Sweep(-90.0f, -0.3f, 300000), 6.0);
    ExpectUlps(map, reference, Sweep(-0.4f, -1e-4f, 300000), 6.0);
    std::vector<float> x;
    for (float small = -1e-3f; small < -1e-30f; small *= 0.83f) {
      x.push_back(small);
    }
    ExpectUlps(map, reference, x, 2.0);
    x = {0.0f, -0.0f, -kInfinity, kNan};
    std::vector<float> y(x.size());
    map(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_TRUE(std::isnan(y[3]));
  });
}

TEST(SimdMathTest, Sigmoid) {
  OnEverySimdTarget([] {
    const auto map = [](auto... args) {
      HWY_DYNAMIC_DISPATCH(MapSigmoid)(args...);
    };
    ExpectUlps(
        map, [](double x) { return 1.0 / (1.0 + std::exp(-x)); },
        Sweep(-80.0f, 80.0f, 300000), 4.0);
    const std::vector<float> x = {kInfinity, -kInfinity, kNan, 0.0f};
    std::vector<float> y(4);
    map(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.5f);
  });
}

// An exponential off by 2, a quotient and a sum of some.
TEST(SimdMathTest, Softplus) {
  OnEverySimdTarget([] {
    const auto map = [](auto... args) {
      HWY_DYNAMIC_DISPATCH(MapSoftplus)(args...);
    };
    ExpectUlps(
        map, [](double x) { return x > 40.0 ? x : std::log1p(std::exp(x)); },
        Sweep(-80.0f, 80.0f, 300000), 6.0);
    const std::vector<float> x = {kInfinity, -kInfinity, kNan};
    std::vector<float> y(3);
    map(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], kInfinity);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_TRUE(std::isnan(y[2]));
  });
}

TEST(SimdMathTest, Tanh) {
  OnEverySimdTarget([] {
    const auto map = [](auto... args) {
      HWY_DYNAMIC_DISPATCH(MapTanh)(args...);
    };
    const auto tanh = [](double x) { return std::tanh(x); };
    ExpectUlps(map, tanh, Sweep(-12.0f, 12.0f, 300000), 4.0);
    ExpectUlps(map, tanh, Sweep(-1e-3f, 1e-3f, 10000), 4.0);
    const std::vector<float> x = {kInfinity, -kInfinity, kNan, 0.0f, 1e-30f};
    std::vector<float> y(5);
    map(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], -1.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], 1e-30f);
  });
}

TEST(SimdMathTest, OnePlusErf) {
  OnEverySimdTarget([] {
    const auto map = [](auto... args) {
      HWY_DYNAMIC_DISPATCH(MapOnePlusErf)(args...);
    };
    const auto reference = [](double x) { return std::erfc(-x); };
    ExpectUlps(map, reference, Sweep(-9.0f, 9.0f, 300000), 84.0);
    ExpectUlps(map, reference, Sweep(-0.5f, 9.0f, 300000), 4.0);
    const std::vector<float> x = {kInfinity, -kInfinity, kNan, 0.0f};
    std::vector<float> y(4);
    map(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 2.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.0f);
  });
}

TEST(SimdMathTest, LaneSumsDoNotDependOnTheArgumentsPlace) {
  OnEverySimdTarget([] {
    std::vector<float> x(4 * 64);
    float sums[4];
    const size_t lanes = HWY_DYNAMIC_DISPATCH(Sums4)(x.data(), sums);
    for (size_t i = 0; i < lanes; ++i) {
      const float value = std::sin(static_cast<float>(i + 1)) * 1e3f;
      for (size_t v = 0; v < 4; ++v) x[v * lanes + i] = value;
    }
    HWY_DYNAMIC_DISPATCH(Sums4)(x.data(), sums);
    double want = 0.0, size = 0.0;
    for (size_t i = 0; i < lanes; ++i) {
      want += static_cast<double>(x[i]);
      size += std::abs(static_cast<double>(x[i]));
    }
    // A rounding of a partial sum a lane, in any order.
    EXPECT_NEAR(sums[0], want, 0x1p-24 * static_cast<double>(lanes) * size);
    for (size_t v = 1; v < 4; ++v) EXPECT_EQ(sums[v], sums[0]);
  });
}

}  // namespace
}  // namespace inlay
#endif  // HWY_ONCE
