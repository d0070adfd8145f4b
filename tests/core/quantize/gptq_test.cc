// GPTQ on small random layers against a plain loop, and what it promises.
#include "core/quantize/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "kernels/quant/quant.h"
#include "memory/device/device.h"

namespace inlay {
namespace {

constexpr DType kGrids[] = {DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,
                            DType::kQ5_1,   DType::kQ8_0,    DType::kIQ4_NL,
                            DType::kU4_G32, DType::kU4_G128, DType::kI8_G128,
                            DType::kQ2_K,   DType::kQ3_K,    DType::kQ4_K,
                            DType::kQ5_K,   DType::kQ6_K,    DType::kIQ4_XS};

class GptqTest : public ::testing::Test {
 protected:
  GptqTest() {
    device_ = *CreateCpuDevice(2, 0);
    stream_ = *device_->CreateStream();
  }

  static std::vector<float> Gaussian(int64_t count, uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(rng);
    return values;
  }
  // Inputs that go together, of sizes apart, as those of networks do.
  static std::vector<float> Inputs(int64_t tokens, int64_t k) {
    const std::vector<float> own = Gaussian(tokens * k, 1);
    const std::vector<float> shared = Gaussian(tokens * 4, 2);
    const std::vector<float> mix = Gaussian(k * 4, 3);
    const std::vector<float> size = Gaussian(k, 4);
    std::vector<float> x(own.size());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < k; ++i) {
        float sum = 0.5f * own[static_cast<size_t>(t * k + i)];
        for (int64_t c = 0; c < 4; ++c) {
          sum += shared[static_cast<size_t>(t * 4 + c)] *
                 mix[static_cast<size_t>(i * 4 + c)];
        }
        x[static_cast<size_t>(t * k + i)] =
            sum * std::exp(size[static_cast<size_t>(i)]);
      }
    }
    return x;
  }
  Hessian MakeHessian(const std::vector<float>& x, int64_t k) {
    Hessian hessian(k, true);
    const auto tokens = static_cast<int64_t>(x.size()) / k;
    EXPECT_TRUE(hessian.Add(FloatView(x.data(), tokens, k, k), *stream_).ok());
    return hessian;
  }
  InputFactor MakeFactor(Hessian hessian, const FactorOptions& options = {}) {
    auto factor = InputFactor::Create(std::move(hessian), options, *stream_);
    EXPECT_TRUE(factor.ok()) << factor.status();
    return *std::move(factor);
  }
  std::vector<std::byte> Encoded(const InputFactor& factor,
                                 const BlockCodec& codec,
                                 const std::vector<float>& weights) {
    const int64_t rows = static_cast<int64_t>(weights.size()) / factor.inputs();
    std::vector<std::byte> bytes(
        static_cast<size_t>(rows) *
        RowBytes(codec.dtype, static_cast<size_t>(factor.inputs())));
    GptqEncoder encoder(factor, *codec.grid);
    EXPECT_TRUE(
        encoder.Encode(weights.data(), rows, bytes.data(), *stream_).ok());
    return bytes;
  }
  static std::vector<float> Decoded(const BlockCodec& codec,
                                    const std::vector<std::byte>& bytes) {
    const FormatInfo& format = GetFormatInfo(codec.dtype);
    const auto blocks = static_cast<int64_t>(bytes.size()) / format.block_bytes;
    std::vector<float> values(
        static_cast<size_t>(blocks * format.block_elements),
        std::numeric_limits<float>::quiet_NaN());
    codec.decode(bytes.data(), blocks, values.data());
    return values;
  }
  // Of the outputs of x: what tr(E H E^T) is.
  static double OutputError(const std::vector<float>& got,
                            const std::vector<float>& want,
                            const std::vector<float>& x, int64_t k) {
    double sum = 0;
    for (size_t row = 0; row < want.size(); row += static_cast<size_t>(k)) {
      for (size_t t = 0; t < x.size(); t += static_cast<size_t>(k)) {
        double off = 0;
        for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
          off += (double{got[row + i]} - want[row + i]) * x[t + i];
        }
        sum += off * off;
      }
    }
    return sum;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(GptqTest, HessianIsThatOfThePlainLoop) {
  // More than a panel, and more tokens than a piece, neither a whole number.
  const int64_t k = 300, tokens = 700;
  const std::vector<float> x = Inputs(tokens, k);
  Hessian hessian = MakeHessian(x, k);
  EXPECT_EQ(hessian.tokens(), tokens);
  const std::vector<double> diagonal = hessian.diagonal();
  const std::vector<float> means = hessian.MeanMagnitudes();
  const std::vector<float> matrix = hessian.TakeMatrix();
  for (int64_t a = 0; a < k; ++a) {
    double magnitude = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      magnitude += std::abs(x[static_cast<size_t>(t * k + a)]);
    }
    const auto at = static_cast<size_t>(a);
    // Sums in float64: the mean is rounded, and the product here.
    EXPECT_NEAR(means[at] * tokens, magnitude, 2.01 * 0x1p-24 * magnitude);
    for (int64_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        sum += double{x[static_cast<size_t>(t * k + a)]} *
               x[static_cast<size_t>(t * k + b)];
      }
      // Float32 sums of 700 products, in any order: a rounding each of a
      // partial sum, which is at most the square root of the diagonals' product
      // (Cauchy-Schwarz), as all are together.
      const double scale =
          std::sqrt(diagonal[at] * diagonal[static_cast<size_t>(b)]);
      ASSERT_NEAR(matrix[static_cast<size_t>(a * k + b)], sum,
                  static_cast<double>(tokens) * 0x1p-24 * scale)
          << a << " " << b;
    }
  }
}

TEST_F(GptqTest, EnergyIsTheErrorOfTheOutputs) {
  for (const bool act_order : {false, true}) {
    const int64_t k = 200, tokens = 400, rows = 7;
    const std::vector<float> x = Inputs(tokens, k);
    const InputFactor factor = MakeFactor(
        MakeHessian(x, k), {.damping = 1e-7, .act_order = act_order});
    const std::vector<float> errors = Gaussian(rows * k, 9);
    std::vector<float> sorted(errors.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t p = 0; p < k; ++p) {
        const int64_t input =
            act_order ? factor.order()[static_cast<size_t>(p)] : p;
        sorted[static_cast<size_t>(row * k + p)] =
            errors[static_cast<size_t>(row * k + input)];
      }
    }
    const auto energy = factor.Energy(sorted.data(), rows, *stream_);
    ASSERT_TRUE(energy.ok());
    const std::vector<float> zeros(errors.size());
    const double want = OutputError(errors, zeros, x, k);
    // In float32 sums and the factor err by (tokens + 2 k) 2^-24 of what
    // |errors| and |inputs| would give: 4.8e-5 of the energy, were no products
    // of either sign to cancel. These errors have nothing to do with the
    // inputs, so that of the energy little cancels: twice that, and the damping
    // (1e-7) is beside it nothing.
    const double roundings = static_cast<double>(tokens + 2 * k) * 0x1p-24;
    EXPECT_NEAR(*energy, want, 2 * roundings * want);
  }
}

// Of k x k, by Gauss-Jordan.
std::vector<double> Inverse(std::vector<double> h, int64_t k) {
  const auto at = [k](int64_t a, int64_t b) {
    return static_cast<size_t>(a * k + b);
  };
  std::vector<double> inverse(h.size());
  for (int64_t i = 0; i < k; ++i) inverse[at(i, i)] = 1;
  for (int64_t p = 0; p < k; ++p) {
    const double pivot = h[at(p, p)];
    for (int64_t c = 0; c < k; ++c) {
      h[at(p, c)] /= pivot;
      inverse[at(p, c)] /= pivot;
    }
    for (int64_t r = 0; r < k; ++r) {
      const double factor = h[at(r, p)];
      if (r == p || factor == 0) continue;
      for (int64_t c = 0; c < k; ++c) {
        h[at(r, c)] -= factor * h[at(p, c)];
        inverse[at(r, c)] -= factor * inverse[at(p, c)];
      }
    }
  }
  return inverse;
}

// Column by column in float64, from the inverse of H as the paper has it.
std::vector<double> Reference(const std::vector<float>& weights, int64_t rows,
                              int64_t k, std::vector<double> inverse,
                              const BlockGrid& grid,
                              const std::vector<float>& costs) {
  const auto at = [k](int64_t a, int64_t b) {
    return static_cast<size_t>(a * k + b);
  };
  std::vector<double> w(weights.begin(), weights.end());
  std::vector<GridScales> scales(static_cast<size_t>(rows));
  for (int64_t j = 0; j < k; ++j) {
    const auto within = static_cast<int>(j % grid.elements);
    for (int64_t row = 0; row < rows; ++row) {
      GridScales& scale = scales[static_cast<size_t>(row)];
      if (within == 0) {
        std::vector<float> block(static_cast<size_t>(grid.elements));
        for (int i = 0; i < grid.elements; ++i) {
          block[static_cast<size_t>(i)] = static_cast<float>(w[at(row, j + i)]);
        }
        grid.fit(block.data(), costs.data() + j, 1, &scale);
      }
      const auto value = static_cast<float>(w[at(row, j)]);
      const double q =
          grid.Value(scale, within, grid.NearestLevel(scale, within, value));
      const double error = (w[at(row, j)] - q) / inverse[at(j, j)];
      for (int64_t c = j + 1; c < k; ++c) {
        w[at(row, c)] -= error * inverse[at(j, c)];
      }
      w[at(row, j)] = q;
    }
    // Eliminate input j from the inverse.
    const double pivot = inverse[at(j, j)];
    for (int64_t r = j + 1; r < k; ++r) {
      const double factor = inverse[at(r, j)] / pivot;
      for (int64_t c = j + 1; c < k; ++c) {
        inverse[at(r, c)] -= factor * inverse[at(j, c)];
      }
    }
  }
  return w;
}

// Float32 and float64 part ways where a value lies between two codes: a few
// values, each of which moves those after it.
TEST_F(GptqTest, EqualsThePapersLoop) {
  // A block of 256 inputs and half of one.
  const int64_t k = 384, rows = 24, tokens = 500;
  const std::vector<float> x = Inputs(tokens, k);
  const std::vector<float> weights = Gaussian(rows * k, 5);
  const InputFactor factor = MakeFactor(MakeHessian(x, k));
  std::vector<double> h(static_cast<size_t>(k * k));
  double trace = 0;
  for (int64_t a = 0; a < k; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        sum += double{x[static_cast<size_t>(t * k + a)]} *
               x[static_cast<size_t>(t * k + b)];
      }
      h[static_cast<size_t>(a * k + b)] = sum;
      h[static_cast<size_t>(b * k + a)] = sum;
    }
    trace += h[static_cast<size_t>(a * k + a)];
  }
  for (int64_t a = 0; a < k; ++a) {
    h[static_cast<size_t>(a * k + a)] += 0.01 * trace / k;
  }
  const std::vector<double> inverse = Inverse(std::move(h), k);
  for (const DType dtype : {DType::kQ4_0, DType::kU4_G128, DType::kIQ4_NL}) {
    SCOPED_TRACE(DTypeName(dtype));
    const BlockCodec& codec = *FindBlockCodec(dtype);
    const std::vector<double> want =
        Reference(weights, rows, k, inverse, *codec.grid, factor.costs());
    const std::vector<float> got =
        Decoded(codec, Encoded(factor, codec, weights));
    int rows_alike = 0;
    for (int64_t row = 0; row < rows; ++row) {
      bool alike = true;
      for (int64_t i = 0; i < k; ++i) {
        const auto at = static_cast<size_t>(row * k + i);
        alike &=
            std::abs(got[at] - want[at]) <= 1e-5 * (1 + std::abs(want[at]));
      }
      rows_alike += alike ? 1 : 0;
    }
    // Not derived: a weight whose rounding is near the middle of two levels may
    // go the other way in float32 than in float64, and changes all that come
    // after it in its row, as near to the optimum. One step more or less.
    EXPECT_GE(rows_alike, rows / 2);
    const std::vector<float> rounded(want.begin(), want.end());
    const double error = OutputError(got, weights, x, k);
    EXPECT_NEAR(error / OutputError(rounded, weights, x, k), 1.0, 0.02);
  }
}

TEST_F(GptqTest, LowersTheErrorOfTheOutputs) {
  const int64_t k = 512, rows = 8, tokens = 800;
  const std::vector<float> x = Inputs(tokens, k);
  const std::vector<float> weights = Gaussian(rows * k, 6);
  const InputFactor factors[] = {
      MakeFactor(MakeHessian(x, k)),
      MakeFactor(MakeHessian(x, k), {.act_order = true})};
  for (const DType dtype : kGrids) {
    const BlockCodec& codec = *FindBlockCodec(dtype);
    std::vector<std::byte> plain(static_cast<size_t>(rows) *
                                 RowBytes(dtype, static_cast<size_t>(k)));
    codec.encode(weights.data(), rows * k / codec.grid->elements, plain.data());
    const double nearest = OutputError(Decoded(codec, plain), weights, x, k);
    for (const bool act_order : {false, true}) {
      const InputFactor& factor = factors[act_order ? 1 : 0];
      const double gptq = OutputError(
          Decoded(codec, Encoded(factor, codec, weights)), weights, x, k);
      // Of quality, not derived. These inputs have much in common, which GPTQ
      // makes use of; 8 bits leave little to gain.
      EXPECT_LT(gptq, 0.5 * nearest)
          << DTypeName(dtype) << (act_order ? ", act order" : "");
    }
  }
}

// Nothing to pass on: values weighted by H, in any order.
TEST_F(GptqTest, OfADiagonalIsWeightedRounding) {
  const int64_t k = 256, rows = 9;
  std::vector<float> x(static_cast<size_t>(k * k));
  const std::vector<float> size = Gaussian(k, 8);
  std::vector<float> h(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) {
    const float value = std::exp(size[static_cast<size_t>(i)]);
    x[static_cast<size_t>(i * k + i)] = value;
    h[static_cast<size_t>(i)] = value * value;
  }
  const std::vector<float> weights = Gaussian(rows * k, 7);
  std::vector<float> spread;
  for (int64_t row = 0; row < rows; ++row) {
    spread.insert(spread.end(), h.begin(), h.end());
  }
  for (const bool identity : {false, true}) {
    if (identity) {
      for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i * k + i)] = 1.0f;
      std::fill(spread.begin(), spread.end(), 1.0f);
    }
    for (const bool act_order : {false, true}) {
      const InputFactor factor = MakeFactor(
          MakeHessian(x, k), {.damping = 0.0, .act_order = act_order});
      for (const DType dtype : kGrids) {
        const BlockCodec& codec = *FindBlockCodec(dtype);
        std::vector<std::byte> want(static_cast<size_t>(rows) *
                                    RowBytes(dtype, static_cast<size_t>(k)));
        EncodeOnGrid(*codec.grid, weights.data(), spread.data(),
                     rows * k / codec.grid->elements, want.data());
        const std::vector<float> exact = Decoded(codec, want);
        const std::vector<float> got =
            Decoded(codec, Encoded(factor, codec, weights));
        // Square roots taken and squared again: importances differ by
        // rounding, and a scale in f16 may become the next one, which is 2^-10
        // of itself off: of weights below 4, 2^-8.
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_NEAR(got[i], exact[i], identity ? 0.0 : 0x1p-8)
              << DTypeName(dtype) << " " << i;
        }
        if (!identity || !GetFormatInfo(dtype).name.ends_with("_k")) continue;
        codec.encode(weights.data(), rows * k / 256, want.data());
        EXPECT_EQ(Encoded(factor, codec, weights), want) << DTypeName(dtype);
      }
    }
  }
}

// Fewer tokens than inputs, and inputs that are never there.
TEST_F(GptqTest, SingularHessians) {
  const int64_t k = 256, rows = 5;
  for (const int64_t tokens : {1, 40}) {
    std::vector<float> x = Inputs(tokens, k);
    for (size_t i = 0; i < x.size(); ++i) {
      if (i % 256 >= 64 && i % 256 < 100) x[i] = 0.0f;
    }
    const std::vector<float> weights = Gaussian(rows * k, 7);
    for (const bool act_order : {false, true}) {
      const InputFactor factor =
          MakeFactor(MakeHessian(x, k), {.act_order = act_order});
      for (const DType dtype : {DType::kQ4_0, DType::kQ4_K, DType::kU4_G128}) {
        const BlockCodec& codec = *FindBlockCodec(dtype);
        const std::vector<float> got =
            Decoded(codec, Encoded(factor, codec, weights));
        for (size_t i = 0; i < got.size(); ++i) {
          // What is handed on is of weights of deviation 1, none above 4:
          // nothing is divided by what is not there.
          ASSERT_NEAR(got[i], weights[i], 4.0f) << i;
        }
      }
    }
  }
  const InputFactor nothing =
      MakeFactor(MakeHessian(std::vector<float>(512), 256));
  EXPECT_EQ(nothing.costs()[7], 1.0f);
}

TEST_F(GptqTest, InputsThatAreNotFinite) {
  for (const float bad :
       {std::nanf(""), 1e30f, std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = Inputs(8, 64);
    x[100] = bad;
    const auto factor = InputFactor::Create(MakeHessian(x, 64), {}, *stream_);
    EXPECT_TRUE(absl::IsInvalidArgument(factor.status())) << bad;
    EXPECT_NE(factor.status().message().find("input 36"),
              absl::string_view::npos)
        << factor.status();
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      InputFactor::Create(Hessian(32, true), {}, *stream_).status()));
}

TEST_F(GptqTest, ThreadsAndBandsDoNotChangeTheCodes) {
  const int64_t k = 384, rows = 20;
  const std::vector<float> x = Inputs(500, k);
  const std::vector<float> weights = Gaussian(rows * k, 5);
  const BlockCodec& codec = *FindBlockCodec(DType::kQ4_0);
  const std::vector<std::byte> both =
      Encoded(MakeFactor(MakeHessian(x, k)), codec, weights);
  device_ = *CreateCpuDevice(1, 0);
  stream_ = *device_->CreateStream();
  const InputFactor factor = MakeFactor(MakeHessian(x, k));
  EXPECT_EQ(Encoded(factor, codec, weights), both);
  const std::vector<float> some(weights.begin() + 7 * k, weights.end());
  const std::vector<std::byte> bytes = Encoded(factor, codec, some);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(),
                         both.end() - static_cast<ptrdiff_t>(bytes.size())));
}

}  // namespace
}  // namespace inlay
