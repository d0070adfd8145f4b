// The small ops: rms_norm, layer_norm, rope, activation, embedding,
// elementwise. Every row against float64.
#include <algorithm>
#include <functional>
#include <numbers>

#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "tests/support/kernel_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

constexpr int64_t kWidths[] = {1, 2, 7, 8, 9, 31, 64, 100, 2051};

TestMatrix Random(int64_t rows, int64_t cols, unsigned seed, int64_t pad = 0,
                  float deviation = 1.0f) {
  std::mt19937 rng(seed);
  TestMatrix matrix(DType::kF32, rows, cols, pad);
  matrix.Randomize(rng, deviation);
  return matrix;
}

TEST(RmsNormTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const int64_t width : kWidths) {
    for (const bool weighted : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "width " << width);
      TestMatrix x = Random(5, width, 1, 3);
      TestMatrix weight = Random(1, width, 2);
      const RmsNormDesc desc{width, DType::kF32};
      const auto want = [&](int64_t r, int64_t c) {
        double squares = 0.0;
        for (int64_t i = 0; i < width; ++i)
          squares += double{x(r, i)} * x(r, i);
        return x(r, c) /
               std::sqrt(squares / static_cast<double>(width) + double{1e-5f}) *
               (weighted ? weight(0, c) : 1.0);
      };
      // The sum of squares errs by at most width + 1 relative roundings, halved
      // by the root; four more follow.
      const auto tolerance = [&](int64_t r, int64_t c) {
        return std::abs(want(r, c)) * kUnitF32 *
                   (static_cast<double>(width) / 2 + 8) +
               1e-30;
      };
      ForEachCpuRow(RmsNormTable(), desc, cpu, [&](const RmsNormRow& row) {
        TestMatrix y(DType::kF32, 5, width, 2);
        RmsNormParams params{x.view(), weighted ? weight.floats() : nullptr,
                             1e-5f, y.view()};
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        if (width > 100) {
          // The O(width^2) check only where it is cheap: a few columns suffice.
          for (const int64_t c : {int64_t{0}, width / 2, width - 1}) {
            EXPECT_NEAR(y(3, c), want(3, c), tolerance(3, c));
          }
        } else {
          ExpectClose(y, want, tolerance);
        }
        TestMatrix in_place = x;
        params.x = params.y = in_place.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int64_t r = 0; r < 5; ++r) {
          EXPECT_EQ(in_place.RowBits(r), y.RowBits(r));
        }
      });
    }
  }
}

TEST(LayerNormTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(::testing::Message() << "width " << width);
    TestMatrix x = Random(3, width, 4, 1);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < width; ++c) x.Set(r, c, x(r, c) + 3.0f);
    }
    TestMatrix weight = Random(1, width, 5);
    TestMatrix bias = Random(1, width, 6);
    const LayerNormDesc desc{width, DType::kF32};
    std::vector<double> want;
    std::vector<double> tolerance;
    double moved = 0.0;  // by the mean's error, of the second row
    const auto n = static_cast<double>(width);
    for (int64_t r = 0; r < 3; ++r) {
      double mean = 0.0;
      double variance = 0.0;
      double magnitude = 0.0;
      for (int64_t c = 0; c < width; ++c) {
        mean += x(r, c) / n;
        magnitude += std::abs(x(r, c)) / n;
      }
      for (int64_t c = 0; c < width; ++c) {
        variance += (x(r, c) - mean) * (x(r, c) - mean) / n;
      }
      const double factor = 1.0 / std::sqrt(variance + double{1e-3f});
      if (r == 1) moved = (n + 4) * magnitude * factor;
      for (int64_t c = 0; c < width; ++c) {
        const double scaled = (x(r, c) - mean) * factor * weight(0, c);
        want.push_back(scaled + bias(0, c));
        // The mean errs by width + 1 roundings of `magnitude`, the subtraction
        // and the scaling by a few of their results.
        tolerance.push_back(
            kUnitF32 * ((n + 4) * magnitude * factor * std::abs(weight(0, c)) *
                            (1 + std::abs(x(r, c) - mean) * factor) +
                        (n + 8) * (std::abs(scaled) + std::abs(bias(0, c)))));
      }
    }
    ForEachCpuRow(LayerNormTable(), desc, cpu, [&](const LayerNormRow& row) {
      TestMatrix y(DType::kF32, 3, width, 4);
      LayerNormParams params{x.view(), weight.floats(), bias.floats(), 1e-3f,
                             y.view()};
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      const auto at = [width](const std::vector<double>& values) {
        return [&values, width](int64_t r, int64_t c) {
          return values[static_cast<size_t>(r * width + c)];
        };
      };
      ExpectClose(y, at(want), at(tolerance));
      params.weight = params.bias = nullptr;
      TestMatrix plain(DType::kF32, 3, width);
      params.y = plain.view();
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      double sum = 0.0;
      for (int64_t c = 0; c < width; ++c) sum += plain(1, c);
      // Values of deviation 1, and four roundings of them.
      EXPECT_NEAR(sum / n, 0.0, kUnitF32 * (moved + 4));
    });
  }
}

TEST(RopeTest, MatchesFloat64) {
  TestCpu cpu(2);
  constexpr int kShapes[][2] = {{32, 32}, {80, 80}, {80, 32}, {6, 4},
                                {10, 2},  {64, 36}, {8, 0}};
  for (const auto& [head_dim, rotary_dim] : kShapes) {
    for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
      SCOPED_TRACE(::testing::Message()
                   << "head_dim " << head_dim << " rotary_dim " << rotary_dim);
      const RopeDesc desc{3, head_dim, rotary_dim, style, DType::kF32};
      const int pairs = rotary_dim / 2;
      TestMatrix x = Random(6, 3 * head_dim, 7, 1);
      const std::vector<int32_t> positions = {0, 1, 5, 100, 4095, 131071};
      std::vector<float> inv_freq;
      for (int i = 0; i < pairs; ++i) {
        inv_freq.push_back(
            1.0f / std::pow(10000.0f,
                            static_cast<float>(i) / static_cast<float>(pairs)));
      }
      std::vector<float> cos(static_cast<size_t>(6 * pairs));
      std::vector<float> sin(cos.size());
      FillRopeAngles(positions, inv_freq, 1.25f, cos.data(), sin.data());
      const auto want = [&, head_dim = head_dim, rotary_dim = rotary_dim](
                            int64_t t, int64_t c) {
        const auto d = static_cast<int>(c % head_dim);
        if (d >= rotary_dim) return double{x(t, c)};
        const bool half = style == RopeStyle::kHalf;
        const int pair = half ? d % pairs : d / 2;
        const bool second = half ? d >= pairs : d % 2 == 1;
        const int64_t other =
            half ? (second ? c - pairs : c + pairs) : (second ? c - 1 : c + 1);
        const float angle =
            static_cast<float>(positions[static_cast<size_t>(t)]) *
            inv_freq[static_cast<size_t>(pair)];
        const double turn = std::sin(double{angle}) * 1.25;
        return x(t, c) * std::cos(double{angle}) * 1.25 +
               (second ? turn : -turn) * x(t, other);
      };
      // Cosine and sine (a unit in the last place), times the scale, the
      // product and the sum: 5 roundings of at most 1.25 (|a| + |b|); what is
      // not rotated stays as it is, a bound that is not 0.
      const auto tolerance = [&, head_dim = head_dim, rotary_dim = rotary_dim](
                                 int64_t t, int64_t c) {
        const auto d = static_cast<int>(c % head_dim);
        if (d >= rotary_dim) return 1e-30;
        const bool half = style == RopeStyle::kHalf;
        const int64_t other = half ? (d >= pairs ? c - pairs : c + pairs)
                                   : c + (d % 2 == 1 ? -1 : 1);
        return 5.1 * kUnitF32 * 1.25 *
               (std::abs(x(t, c)) + std::abs(x(t, other)));
      };
      ForEachCpuRow(RopeTable(), desc, cpu, [&](const RopeRow& row) {
        TestMatrix y = x;
        const RopeParams params{y.view(), cos.data(), sin.data()};
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        ExpectClose(y, want, tolerance);
      });
    }
  }
}

// The part that turns may lie anywhere in a head.
TEST(RopeTest, TurnsAPartBehindOthers) {
  TestCpu cpu(2);
  for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
    const RopeDesc alone{3, 16, 16, style, DType::kF32};
    RopeDesc behind{3, 48, 16, style, DType::kF32};
    behind.first = 32;
    TestMatrix x = Random(4, 3 * 48, 7, 1);
    TestMatrix part(DType::kF32, 4, 3 * 16, 2);
    const auto in_part = [](int64_t c) { return c / 16 * 48 + 32 + c % 16; };
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t c = 0; c < 48; ++c) part.Set(t, c, x(t, in_part(c)));
    }
    std::vector<float> cos(4 * 8), sin(4 * 8);
    FillRopeAngles({0, 3, 70, 4095}, {1, .5, .2, .1, .05, .02, .01, .001}, 1.0f,
                   cos.data(), sin.data());
    ForEachCpuRow(RopeTable(), behind, cpu, [&](const RopeRow& row) {
      TestMatrix y = x;
      TestMatrix want = part;
      ASSERT_TRUE(
          row.run(behind, {y.view(), cos.data(), sin.data()}, *cpu.stream)
              .ok());
      ASSERT_TRUE(
          row.run(alone, {want.view(), cos.data(), sin.data()}, *cpu.stream)
              .ok());
      for (int64_t t = 0; t < 4; ++t) {
        for (int64_t c = 0; c < 48; ++c) {
          EXPECT_EQ(y(t, in_part(c)), want(t, c));
        }
        for (int64_t c = 0; c < 3 * 48; ++c) {
          if (c % 48 < 32) {
            EXPECT_EQ(y(t, c), x(t, c));
          }
        }
      }
    });
    behind.first = 33;
    EXPECT_FALSE(
        Select("rope", RopeTable(), behind, {DeviceKind::kCpu, "cpu"}).ok());
  }
}

double ActivationReference(Activation function, double x) {
  switch (function) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      return 0.5 * x *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) *
                              (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kClampedSilu:
    case Activation::kLimitedSilu:
    case Activation::kCappedSilu:
      break;  // of two arguments
  }
  return x;
}

TEST(ActivationTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const Activation function :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kRelu, Activation::kReluSquared}) {
    for (const bool gated : {false, true}) {
      for (const int64_t width : {1, 7, 8, 40, 101}) {
        SCOPED_TRACE(::testing::Message()
                     << "function " << static_cast<int>(function) << " width "
                     << width << " gated " << gated);
        const ActivationDesc desc{function, gated, width, DType::kF32};
        TestMatrix x = Random(4, gated ? 2 * width : width, 9, 3, 4.0f);
        x.Set(0, 0, -200.0f);
        x.Set(1, 0, 200.0f);
        x.Set(2, 0, 0.0f);
        const auto up = [&](int64_t r, int64_t c) {
          return gated ? double{x(r, width + c)} : 1.0;
        };
        const auto want = [&](int64_t r, int64_t c) {
          return ActivationReference(function, x(r, c)) * up(r, c);
        };
        // 1 + tanh and 1 + erf cancel for negative x: an absolute error of a
        // few units of 1 remains, times x / 2 and `up`.
        const auto tolerance = [&](int64_t r, int64_t c) {
          return kUnitF32 * (8 * std::abs(want(r, c)) +
                             4 * std::abs(x(r, c) * up(r, c))) +
                 1e-30;
        };
        ForEachCpuRow(ActivationTable(), desc, cpu,
                      [&](const ActivationRow& row) {
                        TestMatrix y(DType::kF32, 4, width, 1);
                        ActivationParams params{x.view(), y.view()};
                        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                        ExpectClose(y, want, tolerance);
                        TestMatrix in_place = x;
                        params.x = params.y = in_place.view();
                        params.y.dims[1] = width;
                        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                        for (int64_t r = 0; r < 4; ++r) {
                          EXPECT_EQ(in_place.RowBits(r).substr(
                                        0, static_cast<size_t>(width) * 4),
                                    y.RowBits(r));
                        }
                      });
      }
    }
  }
}

TEST(ActivationTest, NanStaysNan) {
  TestCpu cpu(1);
  for (const Activation function :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kRelu, Activation::kReluSquared}) {
    const ActivationDesc desc{function, false, 9, DType::kF32};
    TestMatrix x = Random(1, 9, 1);
    x.Set(0, 2, std::numeric_limits<float>::quiet_NaN());
    x.Set(0, 8, std::numeric_limits<float>::quiet_NaN());
    ForEachCpuRow(ActivationTable(), desc, cpu, [&](const ActivationRow& row) {
      TestMatrix y(DType::kF32, 1, 9);
      ASSERT_TRUE(row.run(desc, {x.view(), y.view()}, *cpu.stream).ok());
      for (int64_t c = 0; c < 9; ++c) {
        EXPECT_EQ(std::isnan(y(0, c)), c == 2 || c == 8) << c;
      }
    });
  }
}

// gate * sigmoid(1.702 gate) * (up + 1), both cut off at the limit.
TEST(ActivationTest, ClampedSiluMatchesFloat64) {
  TestCpu cpu(2);
  constexpr float kLimit = 7.0f;
  for (const int64_t width : {1, 7, 8, 40, 101}) {
    const ActivationDesc desc{Activation::kClampedSilu, true, width,
                              DType::kF32, kLimit};
    TestMatrix x = Random(4, 2 * width, 9, 3, 6.0f);
    x.Set(0, 0, -200.0f);
    x.Set(1, 0, 200.0f);
    x.Set(1, width, -200.0f);
    x.Set(2, width, 200.0f);
    const auto want = [&](int64_t r, int64_t c) {
      const double gate = std::min(double{x(r, c)}, 7.0);
      const double up = std::clamp(double{x(r, width + c)}, -7.0, 7.0);
      return gate / (1.0 + std::exp(-double{kClampedSiluSlope} * gate)) *
             (up + 1.0);
    };
    // The product inside exp is rounded before: |slope * gate| units at most
    // 12, of a value of which 1 + exp takes its share; up + 1 cancels near -1.
    const auto tolerance = [&](int64_t r, int64_t c) {
      const double gate = std::min(double{x(r, c)}, 7.0);
      return kUnitF32 * ((8 + 2 * std::abs(gate)) * std::abs(want(r, c)) +
                         2 * std::abs(gate)) +
             1e-30;
    };
    ForEachCpuRow(ActivationTable(), desc, cpu, [&](const ActivationRow& row) {
      TestMatrix y(DType::kF32, 4, width, 1);
      ActivationParams params{x.view(), y.view()};
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      ExpectClose(y, want, tolerance);
      TestMatrix nan = x;
      nan.Set(0, 0, std::numeric_limits<float>::quiet_NaN());
      nan.Set(1, width, std::numeric_limits<float>::quiet_NaN());
      params.x = nan.view();
      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
      EXPECT_TRUE(std::isnan(y(0, 0)) && std::isnan(y(1, 0)));
    });
  }
  const DeviceInfo& info = cpu.device->info();
  for (const ActivationDesc& bad :
       {ActivationDesc{Activation::kClampedSilu, false, 8, DType::kF32, 7.0f},
        ActivationDesc{Activation::kClampedSilu, true, 8, DType::kF32}}) {
    EXPECT_FALSE(Select("activation", ActivationTable(), bad, info).ok());
  }
}

// silu(gate) * up, both cut off at the limit: the gate before silu or, capped,
// after it.
void ExpectLimitedSilu(Activation function, int64_t width) {
  TestCpu cpu(2);
  SCOPED_TRACE(width);
  const ActivationDesc desc{function, true, width, DType::kF32, 7.0f};
  const bool capped = function == Activation::kCappedSilu;
  TestMatrix x = Random(4, 2 * width, 9, 3, 6.0f);
  x.Set(0, 0, -200.0f);
  x.Set(1, 0, 200.0f);
  x.Set(1, width, -200.0f);
  x.Set(2, width, 200.0f);
  const auto want = [&](int64_t r, int64_t c) {
    const double gate =
        capped ? double{x(r, c)} : std::min(double{x(r, c)}, 7.0);
    const double up = std::clamp(double{x(r, width + c)}, -7.0, 7.0);
    const double silu = gate / (1.0 + std::exp(-gate));
    return (capped ? std::min(silu, 7.0) : silu) * up;
  };
  // A sigmoid off by 4 units in the last place and two products.
  const auto tolerance = [&](int64_t r, int64_t c) {
    return kUnitF32 * 10.1 * std::abs(want(r, c)) + 1e-30;
  };
  ForEachCpuRow(ActivationTable(), desc, cpu, [&](const ActivationRow& row) {
    TestMatrix y(DType::kF32, 4, width, 1);
    ActivationParams params{x.view(), y.view()};
    ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
    ExpectClose(y, want, tolerance);
    TestMatrix nan = x;
    nan.Set(0, 0, std::numeric_limits<float>::quiet_NaN());
    nan.Set(1, width, std::numeric_limits<float>::quiet_NaN());
    params.x = nan.view();
    ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
    EXPECT_TRUE(std::isnan(y(0, 0)) && std::isnan(y(1, 0)));
  });
}

TEST(ActivationTest, LimitedSiluMatchesFloat64) {
  for (const int64_t width : {1, 7, 8, 40, 101}) {
    ExpectLimitedSilu(Activation::kLimitedSilu, width);
  }
}

TEST(ActivationTest, CappedSiluMatchesFloat64) {
  for (const int64_t width : {1, 7, 8, 40, 101}) {
    ExpectLimitedSilu(Activation::kCappedSilu, width);
  }
}

TEST(ActivationTest, Names) {
  EXPECT_EQ(ActivationFromName("silu"), Activation::kSilu);
  EXPECT_EQ(ActivationFromName("swish"), Activation::kSilu);
  EXPECT_EQ(ActivationFromName("gelu"), Activation::kGelu);
  EXPECT_EQ(ActivationFromName("gelu_new"), Activation::kGeluTanh);
  EXPECT_EQ(ActivationFromName("gelu_pytorch_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(ActivationFromName("relu2"), Activation::kReluSquared);
  EXPECT_EQ(ActivationFromName("Silu"), std::nullopt);
  EXPECT_EQ(ActivationFromName(""), std::nullopt);
}

TEST(EmbeddingTest, MatchesTheTable) {
  TestCpu cpu(2);
  std::mt19937 rng(1);
  const std::vector<int32_t> ids = {0, 12, 13, 3, 1};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t width : {1, 8, 21, 64}) {
      const EmbeddingDesc desc{width, dtype, DType::kF32};
      TestMatrix table(dtype, 13, width);
      table.Randomize(rng);
      const TestMatrix base = Random(5, width, 3, 2);
      ForEachCpuRow(EmbeddingTable(), desc, cpu, [&](const EmbeddingRow& row) {
        TestMatrix y(DType::kF32, 5, width, 2);
        EmbeddingParams params;
        params.table = table.view();
        params.ids = ids.data();
        params.scale = 1.5f;
        params.y = y.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        const auto want = [&](int64_t r, int64_t c) {
          const int32_t id = ids[static_cast<size_t>(r)];
          return table(id < 13 ? id : 0, c) * 1.5;
        };
        // The product and the sum.
        const auto tolerance = [&](int64_t r, int64_t c) {
          return 2.1 * kUnitF32 * (std::abs(want(r, c)) + std::abs(base(r, c)));
        };
        ExpectClose(y, want, tolerance);
        TestMatrix sum = base;
        params.accumulate = true;
        params.y = sum.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        ExpectClose(
            sum, [&](int64_t r, int64_t c) { return want(r, c) + base(r, c); },
            tolerance);
      });
    }
  }
}

TEST(ElementwiseTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const Elementwise function :
       {Elementwise::kAdd, Elementwise::kScale, Elementwise::kSoftcap,
        Elementwise::kClamp, Elementwise::kSigmoid}) {
    for (const int64_t width : {1, 7, 8, 9, 100}) {
      SCOPED_TRACE(::testing::Message()
                   << "function " << static_cast<int>(function) << " width "
                   << width);
      const ElementwiseDesc desc{function, width, DType::kF32};
      TestMatrix before = Random(6, width, 1, 2, 10.0f);
      before.Set(0, 0, 1e-4f);
      before.Set(1, 0, 5000.0f);
      TestMatrix x = Random(6, width, 2, 1);
      const float value = function == Elementwise::kClamp ? 3.0f : 30.0f;
      const auto want = [&](int64_t r, int64_t c) {
        const double y = before(r, c);
        if (function == Elementwise::kClamp) {
          return std::clamp<double>(y, -value, value);
        }
        if (function == Elementwise::kAdd) return y + x(r, c);
        if (function == Elementwise::kScale) return y * value;
        if (function == Elementwise::kSigmoid) return 1 / (1 + std::exp(-y));
        return value * std::tanh(y / value);
      };
      // One rounding; of a softcap the quotient's, the hyperbolic tangent's 4
      // units in the last place, and the product's; of a sigmoid 4 such units.
      const double roundings = function == Elementwise::kSoftcap   ? 10.1
                               : function == Elementwise::kSigmoid ? 8.1
                                                                   : 1.01;
      const auto tolerance = [&](int64_t r, int64_t c) {
        return roundings * kUnitF32 * std::abs(want(r, c)) + 1e-30;
      };
      ForEachCpuRow(ElementwiseTable(), desc, cpu,
                    [&](const ElementwiseRow& row) {
                      TestMatrix y = before;
                      ElementwiseParams params{y.view(), {}, value};
                      if (function == Elementwise::kAdd) params.x = x.view();
                      ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
                      ExpectClose(y, want, tolerance);
                    });
    }
  }
}

}  // namespace
}  // namespace inlay
