// The CUDA rows of the small ops against float64: types in and out, widths with
// and without vectors, strides, in place.
#if INLAY_HAS_CUDA

#include <algorithm>
#include <numbers>

#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "tests/support/cuda_test_util.h"

namespace inlay {
namespace {

using ::inlay::testing::CudaBytes;
using ::inlay::testing::CudaTestMatrix;
using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCudaRow;
using ::inlay::testing::kUnitF32;
using ::inlay::testing::Rounding;
using ::inlay::testing::TestCuda;
using ::inlay::testing::TestMatrix;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kWidths[] = {1,   7,   8,   31,   100,  128,
                               256, 512, 520, 2051, 4096, 9000};
// Norms: from f32 to any type, otherwise to the same.
constexpr std::pair<DType, DType> kNormTypes[] = {{DType::kF32, DType::kF32},
                                                  {DType::kF32, DType::kF16},
                                                  {DType::kF32, DType::kBF16},
                                                  {DType::kF16, DType::kF16},
                                                  {DType::kBF16, DType::kBF16}};

TestMatrix Random(DType dtype, int64_t rows, int64_t cols, unsigned seed,
                  int64_t pad = 0, float deviation = 1.0f) {
  std::mt19937 rng(seed);
  TestMatrix matrix(dtype, rows, cols, pad);
  matrix.Randomize(rng, deviation);
  return matrix;
}

// Padding that keeps rows on 16 bytes for every third width, and does not for
// the others.
int64_t PadOf(int64_t width) { return width % 3 == 0 ? 8 : width % 3; }

// Reference values and tolerances of a [rows, width] output.
struct Expected {
  explicit Expected(int64_t width) : width(width) {}
  void Add(double value, double off) {
    want.push_back(value);
    tolerance.push_back(off);
  }
  void Check(const TestMatrix& actual) const {
    const auto at = [this](const std::vector<double>& values) {
      return [&values, this](int64_t r, int64_t c) {
        return values[static_cast<size_t>(r * width + c)];
      };
    };
    ExpectClose(actual, at(want), at(tolerance));
  }
  int64_t width;
  std::vector<double> want;
  std::vector<double> tolerance;
};

struct NormCase {
  NormCase(int64_t width, DType in, float offset)
      : x(Random(in, 7, width, 1, PadOf(width))),
        weight(Random(DType::kF32, 1, width, 2)),
        bias(Random(DType::kF32, 1, width, 3)) {
    for (int64_t r = 0; r < x.rows(); ++r) {
      for (int64_t c = 0; c < width; ++c) x.Set(r, c, x(r, c) + offset);
    }
  }
  TestMatrix x, weight, bias;
};

TEST(SmallOpsCudaTest, RmsNorm) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t width : kWidths) {
    for (const auto& [in, out] : kNormTypes) {
      SCOPED_TRACE(::testing::Message()
                   << width << " " << DTypeName(in) << " " << DTypeName(out));
      NormCase norm(width, in, 0.0f);
      CudaTestMatrix weight(norm.weight);
      const bool weighted = width % 2 == 0;
      Expected expected(width);
      for (int64_t r = 0; r < 7; ++r) {
        double squares = 0.0;
        for (int64_t c = 0; c < width; ++c) {
          squares += double{norm.x(r, c)} * norm.x(r, c);
        }
        const double factor =
            1.0 /
            std::sqrt(squares / static_cast<double>(width) + double{1e-5f});
        for (int64_t c = 0; c < width; ++c) {
          const double want =
              norm.x(r, c) * factor * (weighted ? norm.weight(0, c) : 1.0);
          // As for the CPU rows; then rounded.
          expected.Add(want, std::abs(want) * kUnitF32 *
                                     (static_cast<double>(width) / 2 + 8) +
                                 Rounding(out, want));
        }
      }
      const RmsNormDesc desc{width, in, out};
      ForEachCudaRow(RmsNormTable(), desc, cuda, [&](const RmsNormRow& row) {
        CudaTestMatrix x(norm.x);
        CudaTestMatrix y(out, 7, width, 2 * PadOf(width));
        RmsNormParams params{x.view(), weighted ? weight.floats() : nullptr,
                             1e-5f, y.view()};
        ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        expected.Check(y.Download());
        if (in != out) return;
        params.y = params.x;
        ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
        for (int64_t r = 0; r < 7; ++r) {
          EXPECT_EQ(x.Download().RowBits(r), y.Download().RowBits(r));
        }
      });
    }
  }
}

TEST(SmallOpsCudaTest, LayerNorm) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const int64_t width : kWidths) {
    for (const auto& [in, out] : kNormTypes) {
      SCOPED_TRACE(::testing::Message()
                   << width << " " << DTypeName(in) << " " << DTypeName(out));
      NormCase norm(width, in, 3.0f);
      CudaTestMatrix weight(norm.weight);
      CudaTestMatrix bias(norm.bias);
      const auto n = static_cast<double>(width);
      Expected expected(width);
      for (int64_t r = 0; r < 7; ++r) {
        double mean = 0.0;
        double magnitude = 0.0;
        double variance = 0.0;
        for (int64_t c = 0; c < width; ++c) {
          mean += norm.x(r, c) / n;
          magnitude += std::abs(norm.x(r, c)) / n;
        }
        for (int64_t c = 0; c < width; ++c) {
          variance += (norm.x(r, c) - mean) * (norm.x(r, c) - mean) / n;
        }
        const double factor = 1.0 / std::sqrt(variance + double{1e-3f});
        for (int64_t c = 0; c < width; ++c) {
          const double weight_c = norm.weight(0, c);
          const double away = norm.x(r, c) - mean;
          const double want = away * factor * weight_c + norm.bias(0, c);
          // As for the CPU rows; then rounded.
          expected.Add(
              want,
              kUnitF32 * ((n + 4) * magnitude * factor * std::abs(weight_c) *
                              (1 + std::abs(away) * factor) +
                          (n + 8) * (std::abs(away * factor * weight_c) +
                                     std::abs(norm.bias(0, c)))) +
                  Rounding(out, want));
        }
      }
      const LayerNormDesc desc{width, in, out};
      ForEachCudaRow(
          LayerNormTable(), desc, cuda, [&](const LayerNormRow& row) {
            CudaTestMatrix x(norm.x);
            CudaTestMatrix y(out, 7, width, PadOf(width));
            const LayerNormParams params{x.view(), weight.floats(),
                                         bias.floats(), 1e-3f, y.view()};
            ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
            expected.Check(y.Download());
          });
    }
  }
}

TEST(SmallOpsCudaTest, RopeAnglesAreThoseOfTheHost) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const std::vector<int32_t> positions = {0, 1, 5, 100, 4095, 131071, 1 << 24};
  std::vector<float> inv_freq;
  for (int i = 0; i < 37; ++i) {
    inv_freq.push_back(std::pow(500000.0f, -static_cast<float>(i) / 37));
  }
  const size_t count = positions.size() * inv_freq.size();
  std::vector<float> cos(count), sin(count), got(count, NAN);
  FillRopeAngles(positions, inv_freq, 1.25f, cos.data(), sin.data());
  CudaBytes device_positions(positions), frequencies(inv_freq);
  CudaBytes device_cos(got), device_sin(got);
  ASSERT_TRUE(FillRopeAnglesCuda(device_positions.as<int32_t>(),
                                 static_cast<int64_t>(positions.size()),
                                 frequencies.as<float>(), 37, 1.25f,
                                 device_cos.as<float>(), device_sin.as<float>(),
                                 *cuda.stream)
                  .ok());
  // Two units in the last place of either side, and the scaling.
  const auto check = [&](const CudaBytes& device,
                         const std::vector<float>& want) {
    device.Download(got.data());
    for (size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(got[i], want[i], 8 * kUnitF32 * std::abs(want[i])) << i;
    }
  };
  check(device_cos, cos);
  check(device_sin, sin);
}

TEST(SmallOpsCudaTest, Rope) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  // head_dim, rotary_dim, first.
  constexpr int kShapes[][3] = {
      {32, 32, 0}, {80, 80, 0},    {80, 32, 0}, {6, 4, 0},    {128, 128, 0},
      {10, 2, 0},  {64, 36, 0},    {8, 0, 0},   {256, 64, 0}, {48, 16, 32},
      {10, 4, 5},  {192, 64, 128}, {80, 32, 7}, {64, 16, 8}};
  for (const auto& [head_dim, rotary_dim, first] : kShapes) {
    for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
      for (const DType dtype : kFloats) {
        SCOPED_TRACE(::testing::Message()
                     << head_dim << " " << rotary_dim << " from " << first
                     << " " << DTypeName(dtype));
        const RopeDesc desc{3, head_dim, rotary_dim, style, dtype, first};
        const int pairs = rotary_dim / 2;
        const TestMatrix x =
            Random(dtype, 6, 3 * head_dim, 7, PadOf(head_dim + 1));
        const TestMatrix cos = Random(DType::kF32, 6, std::max(pairs, 1), 8);
        const TestMatrix sin = Random(DType::kF32, 6, std::max(pairs, 1), 9);
        Expected expected(3 * head_dim);
        for (int64_t t = 0; t < 6; ++t) {
          for (int64_t c = 0; c < 3 * head_dim; ++c) {
            const auto d = static_cast<int>(c % head_dim) - first;
            if (d < 0 || d >= rotary_dim) {
              expected.Add(x(t, c), 1e-37);
              continue;
            }
            const bool half = style == RopeStyle::kHalf;
            const int pair = half ? d % pairs : d / 2;
            const bool second = half ? d >= pairs : d % 2 == 1;
            const int64_t away = (half ? pairs : 1) * (second ? -1 : 1);
            const double own = double{x(t, c)} * cos(t, pair);
            const double other = double{x(t, c + away)} * sin(t, pair);
            const double want = second ? own + other : own - other;
            expected.Add(want,
                         3 * kUnitF32 * (std::abs(own) + std::abs(other)) +
                             Rounding(dtype, want));
          }
        }
        CudaTestMatrix device_cos(cos), device_sin(sin);
        ForEachCudaRow(RopeTable(), desc, cuda, [&](const RopeRow& row) {
          CudaTestMatrix y(x);
          const RopeParams params{y.view(), device_cos.floats(),
                                  device_sin.floats()};
          ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
          expected.Check(y.Download());
        });
      }
    }
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

// silu(gate) * up, both cut off at the limit: the gate before silu or, capped,
// after it.
void ExpectLimitedSilu(Activation function) {
  const bool capped = function == Activation::kCappedSilu;
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const int64_t width : {1, 7, 8, 101, 2056}) {
      SCOPED_TRACE(::testing::Message() << width << " " << DTypeName(dtype));
      const ActivationDesc desc{function, true, width, dtype, 7.0f};
      TestMatrix x = Random(dtype, 4, 2 * width, 9, PadOf(width + 1), 6.0f);
      x.Set(0, 0, -200.0f);
      x.Set(1, 0, 200.0f);
      x.Set(2, width, 200.0f);
      const auto want = [&](int64_t r, int64_t c) {
        const double gate =
            capped ? double{x(r, c)} : std::min(double{x(r, c)}, 7.0);
        const double up = std::clamp(double{x(r, width + c)}, -7.0, 7.0);
        const double silu = gate / (1.0 + std::exp(-gate));
        return (capped ? std::min(silu, 7.0) : silu) * up;
      };
      const auto tolerance = [&](int64_t r, int64_t c) {
        const double gate = std::min(double{x(r, c)}, 8.0);
        return kUnitF32 * (8 + 2 * std::abs(gate)) * std::abs(want(r, c)) +
               Rounding(dtype, want(r, c));
      };
      CudaTestMatrix device_x(x);
      CudaTestMatrix y(dtype, 4, width, 8);
      const ActivationParams params{device_x.view(), y.view()};
      ForEachCudaRow(ActivationTable(), desc, cuda,
                     [&](const ActivationRow& row) {
                       ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                       ExpectClose(y.Download(), want, tolerance);
                     });
    }
  }
}

TEST(SmallOpsCudaTest, LimitedSilu) {
  INLAY_REQUIRE_CUDA();
  ExpectLimitedSilu(Activation::kLimitedSilu);
}

TEST(SmallOpsCudaTest, CappedSilu) {
  INLAY_REQUIRE_CUDA();
  ExpectLimitedSilu(Activation::kCappedSilu);
}

// gate * sigmoid(1.702 gate) * (up + 1), both cut off at the limit.
TEST(SmallOpsCudaTest, ClampedSilu) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const DType dtype : kFloats) {
    for (const int64_t width : {1, 7, 8, 101, 2056}) {
      SCOPED_TRACE(::testing::Message() << width << " " << DTypeName(dtype));
      const ActivationDesc desc{Activation::kClampedSilu, true, width, dtype,
                                7.0f};
      TestMatrix x = Random(dtype, 4, 2 * width, 9, PadOf(width + 1), 6.0f);
      x.Set(0, 0, -200.0f);
      x.Set(1, 0, 200.0f);
      x.Set(2, width, 200.0f);
      const auto want = [&](int64_t r, int64_t c) {
        const double gate = std::min(double{x(r, c)}, 7.0);
        const double up = std::clamp(double{x(r, width + c)}, -7.0, 7.0);
        return gate / (1.0 + std::exp(-double{kClampedSiluSlope} * gate)) *
               (up + 1.0);
      };
      // As for the CPU rows; then rounded.
      const auto tolerance = [&](int64_t r, int64_t c) {
        const double gate = std::min(double{x(r, c)}, 7.0);
        return kUnitF32 * ((8 + 2 * std::abs(gate)) * std::abs(want(r, c)) +
                           2 * std::abs(gate)) +
               Rounding(dtype, want(r, c));
      };
      CudaTestMatrix device_x(x);
      ForEachCudaRow(
          ActivationTable(), desc, cuda, [&](const ActivationRow& row) {
            CudaTestMatrix y(dtype, 4, width, 1);
            ASSERT_TRUE(
                row.run(desc, {device_x.view(), y.view()}, *cuda.stream).ok());
            ExpectClose(y.Download(), want, tolerance);
          });
    }
  }
}

TEST(SmallOpsCudaTest, Activation) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const Activation function :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kRelu, Activation::kReluSquared}) {
    for (const bool gated : {false, true}) {
      for (const DType dtype : kFloats) {
        for (const int64_t width : {1, 7, 8, 101, 2056}) {
          SCOPED_TRACE(::testing::Message()
                       << "function " << static_cast<int>(function) << " gated "
                       << gated << " " << width << " " << DTypeName(dtype));
          const ActivationDesc desc{function, gated, width, dtype};
          TestMatrix x = Random(dtype, 4, gated ? 2 * width : width, 9,
                                PadOf(width + 1), 4.0f);
          x.Set(0, 0, -200.0f);
          x.Set(1, 0, 40.0f);  // its square times up fits f16
          x.Set(2, 0, 0.0f);
          x.Set(3, 0, std::numeric_limits<float>::quiet_NaN());
          Expected expected(width);
          for (int64_t r = 0; r < 4; ++r) {
            for (int64_t c = 0; c < width; ++c) {
              const double up = gated ? x(r, width + c) : 1.0f;
              const double want = ActivationReference(function, x(r, c)) * up;
              // As for the CPU rows; then rounded.
              expected.Add(want, kUnitF32 * (8 * std::abs(want) +
                                             4 * std::abs(x(r, c) * up)) +
                                     Rounding(dtype, want));
            }
          }
          ForEachCudaRow(
              ActivationTable(), desc, cuda, [&](const ActivationRow& row) {
                CudaTestMatrix in_place(x);
                CudaTestMatrix y(dtype, 4, width, 1);
                ActivationParams params{in_place.view(), y.view()};
                ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                TestMatrix got = y.Download();
                EXPECT_TRUE(std::isnan(got(3, 0)));
                got.Set(3, 0, 0.0f);
                Expected without_nan = expected;
                without_nan.want[static_cast<size_t>(3 * width)] = 0.0;
                without_nan.tolerance[static_cast<size_t>(3 * width)] = 1.0;
                without_nan.Check(got);
                params.y = params.x;
                params.y.dims[1] = width;
                ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                const size_t bytes =
                    RowBytes(dtype, static_cast<size_t>(width));
                for (int64_t r = 0; r < 4; ++r) {
                  EXPECT_EQ(in_place.Download().RowBits(r).substr(0, bytes),
                            y.Download().RowBits(r));
                }
              });
        }
      }
    }
  }
}

TEST(SmallOpsCudaTest, EmbeddingIsThatOfTheCpu) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  ::inlay::testing::TestCpu cpu(1);
  const std::vector<int32_t> ids = {0, 12, 13, 3, 1};
  CudaBytes device_ids(ids);
  for (const DType dtype : kFloats) {
    for (const int64_t width : {1, 8, 21, 64, 4104}) {
      for (const bool accumulate : {false, true}) {
        const EmbeddingDesc desc{width, dtype, DType::kF32};
        TestMatrix table = Random(dtype, 13, width, 1);
        TestMatrix want = accumulate
                              ? Random(DType::kF32, 5, width, 3, PadOf(width))
                              : TestMatrix(DType::kF32, 5, width, PadOf(width));
        CudaTestMatrix device_table(table), y(want);
        EmbeddingParams params{table.view(), ids.data(), 1.7f, accumulate,
                               want.view()};
        ASSERT_TRUE(
            (*Select("embedding", EmbeddingTable(), desc, cpu.device->info()))
                ->run(desc, params, *cpu.stream)
                .ok());
        ForEachCudaRow(EmbeddingTable(), desc, cuda,
                       [&](const EmbeddingRow& row) {
                         params.table = device_table.view();
                         params.ids = device_ids.as<int32_t>();
                         params.y = y.view();
                         ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                         for (int64_t r = 0; r < 5; ++r) {
                           EXPECT_EQ(y.Download().RowBits(r), want.RowBits(r));
                         }
                         EXPECT_TRUE(y.Download().PaddingIsPoisoned());
                       });
      }
    }
  }
}

// Where y has the table's type and nothing is scaled, rows are copies.
TEST(SmallOpsCudaTest, EmbeddingPicksRows) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  const std::vector<int32_t> ids = {0, 12, 3, 3, 1};
  CudaBytes device_ids(ids);
  for (const DType dtype : kFloats) {
    for (const int64_t width : {1, 8, 21, 64, 4104}) {
      const TestMatrix table = Random(dtype, 13, width, 1);
      CudaTestMatrix device_table(table);
      CudaTestMatrix y(dtype, 5, width, PadOf(width));
      EmbeddingParams params;
      params.table = device_table.view();
      params.ids = device_ids.as<int32_t>();
      params.y = y.view();
      ForEachCudaRow(
          EmbeddingTable(), EmbeddingDesc{width, dtype, dtype}, cuda,
          [&](const EmbeddingRow& row) {
            ASSERT_TRUE(
                row.run({width, dtype, dtype}, params, *cuda.stream).ok());
            const TestMatrix got = y.Download();
            for (int64_t r = 0; r < 5; ++r) {
              EXPECT_EQ(got.RowBits(r),
                        table.RowBits(ids[static_cast<size_t>(r)]));
            }
            EXPECT_TRUE(got.PaddingIsPoisoned());
          });
    }
  }
}

TEST(SmallOpsCudaTest, Elementwise) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  for (const Elementwise function :
       {Elementwise::kAdd, Elementwise::kScale, Elementwise::kSoftcap,
        Elementwise::kClamp, Elementwise::kSigmoid}) {
    for (const DType dtype : kFloats) {
      for (const int64_t width : {1, 7, 8, 100, 2056}) {
        SCOPED_TRACE(::testing::Message()
                     << "function " << static_cast<int>(function) << " "
                     << width << " " << DTypeName(dtype));
        const ElementwiseDesc desc{function, width, dtype};
        TestMatrix before = Random(dtype, 6, width, 1, PadOf(width), 10.0f);
        before.Set(0, 0, 1e-4f);
        before.Set(1, 0, 5000.0f);
        TestMatrix x = Random(dtype, 6, width, 2, PadOf(width));
        const float value = 1.75f;
        Expected expected(width);
        for (int64_t r = 0; r < 6; ++r) {
          for (int64_t c = 0; c < width; ++c) {
            const double y = before(r, c);
            const double want = function == Elementwise::kAdd     ? y + x(r, c)
                                : function == Elementwise::kScale ? y * value
                                : function == Elementwise::kClamp
                                    ? std::clamp<double>(y, -value, value)
                                : function == Elementwise::kSigmoid
                                    ? 1 / (1 + std::exp(-y))
                                    : value * std::tanh(y / value);
            expected.Add(want,
                         8 * kUnitF32 * std::abs(want) + Rounding(dtype, want));
          }
        }
        CudaTestMatrix device_x(x);
        ForEachCudaRow(ElementwiseTable(), desc, cuda,
                       [&](const ElementwiseRow& row) {
                         CudaTestMatrix y(before);
                         ElementwiseParams params{y.view(), {}, value};
                         if (function == Elementwise::kAdd) {
                           params.x = device_x.view();
                         }
                         ASSERT_TRUE(row.run(desc, params, *cuda.stream).ok());
                         expected.Check(y.Download());
                       });
      }
    }
  }
}

TEST(SmallOpsCudaTest, NothingToDo) {
  INLAY_REQUIRE_CUDA();
  TestCuda cuda;
  CudaTestMatrix x(DType::kF32, 1, 64);
  const RmsNormDesc desc{64};
  ForEachCudaRow(RmsNormTable(), desc, cuda, [&](const RmsNormRow& row) {
    RmsNormParams params{x.view(), nullptr, 1e-5f, x.view()};
    params.x.dims[0] = params.y.dims[0] = 0;
    EXPECT_TRUE(row.run(desc, params, *cuda.stream).ok());
  });
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_HAS_CUDA
