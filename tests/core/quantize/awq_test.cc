// AWQ's search for scales on small random layers, against the errors of outputs
// that plain loops find.
#include "core/quantize/awq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "kernels/quant/grid.h"
#include "memory/device/device.h"

namespace inlay {
namespace {

class AwqTest : public ::testing::Test {
 protected:
  static constexpr int64_t kInputs = 128;
  static constexpr int64_t kTokens = 160;
  static constexpr int64_t kRows = 24;

  AwqTest() : ones_(kInputs, 1.0f) {
    device_ = *CreateCpuDevice(2, 0);
    stream_ = *device_->CreateStream();
  }

  static std::vector<float> Normal(int64_t count, uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(rng);
    return values;
  }
  static bool IsLarge(size_t input) { return input % 32 == 5; }
  // `outlier`: how many times as large some inputs are, and how many times
  // smaller what multiplies them.
  void MakeInputs(float outlier) {
    x_ = Normal(kTokens * kInputs, 1);
    for (size_t i = 0; i < x_.size(); ++i) {
      if (IsLarge(i % kInputs)) x_[i] *= outlier;
    }
    Hessian hessian(kInputs, true);
    ASSERT_TRUE(
        hessian.Add(FloatView(x_.data(), kTokens, kInputs, kInputs), *stream_)
            .ok());
    diagonal_.assign(hessian.diagonal().begin(), hessian.diagonal().end());
    sizes_ = hessian.MeanMagnitudes();
    auto factor =
        InputFactor::Create(std::move(hessian), {.damping = 1e-6}, *stream_);
    ASSERT_TRUE(factor.ok()) << factor.status();
    factor_ = *std::move(factor);
  }
  static AwqReader Reader(DType dtype, float outlier, uint32_t seed,
                          const GroupScheme* scheme = nullptr) {
    AwqReader reader;
    reader.weights = Normal(kRows * kInputs, seed);
    for (size_t i = 0; i < reader.weights.size(); ++i) {
      if (IsLarge(i % kInputs)) reader.weights[i] /= outlier;
    }
    reader.rows = kRows;
    reader.codec = FindBlockCodec(dtype);
    reader.scheme = scheme;
    return reader;
  }
  // Squares of what the outputs are off by.
  double Error(absl::Span<const AwqReader> readers,
               const std::vector<float>& scales) const {
    std::vector<float> importance(kInputs);
    for (size_t i = 0; i < importance.size(); ++i) {
      importance[i] = diagonal_[i] / (scales[i] * scales[i]);
    }
    double sum = 0;
    for (const AwqReader& reader : readers) {
      const BlockGrid& grid = *reader.codec->grid;
      const int64_t blocks = kInputs / grid.elements;
      for (int64_t row = 0; row < reader.rows; ++row) {
        const float* weights = reader.weights.data() + row * kInputs;
        std::vector<float> scaled(kInputs), got(kInputs);
        for (size_t i = 0; i < scaled.size(); ++i) {
          scaled[i] = weights[i] * scales[i];
        }
        std::vector<std::byte> bytes(
            static_cast<size_t>(blocks * grid.block_bytes));
        if (reader.scheme != nullptr) {
          EncodeInGroups(*reader.scheme, scaled.data(), importance.data(),
                         kInputs, bytes.data());
        } else {
          EncodeOnGrid(grid, scaled.data(), importance.data(), blocks,
                       bytes.data());
        }
        reader.codec->decode(bytes.data(), blocks, got.data());
        for (int64_t t = 0; t < kTokens; ++t) {
          double off = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            off += (double{got[i]} / scales[i] - weights[i]) *
                   x_[static_cast<size_t>(t * kInputs) + i];
          }
          sum += off * off;
        }
      }
    }
    return sum;
  }
  std::vector<float> Search(absl::Span<const AwqReader> readers,
                            bool powers_of_two) {
    auto scales = SearchAwqScales(*factor_, diagonal_, sizes_, readers,
                                  powers_of_two, *stream_);
    EXPECT_TRUE(scales.ok()) << scales.status();
    return scales.ok() ? *std::move(scales) : ones_;
  }

  const std::vector<float> ones_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<float> x_, diagonal_, sizes_;
  std::optional<InputFactor> factor_;
};

// Of all powers of the sizes, the one that leaves the outputs of all readers
// together closest; far closer than none where weights of large inputs are
// small. How far is quality, and not derived.
TEST_F(AwqTest, FindsThePowerThatBringsOutputsClosest) {
  MakeInputs(16.0f);
  const GroupScheme rows = {FindBlockCodec(DType::kU4_G128)->grid, 0, true,
                            DType::kF16};
  const std::vector<AwqReader> readers[] = {
      {Reader(DType::kQ4_0, 16.0f, 2)},
      {Reader(DType::kU4_G32, 16.0f, 3), Reader(DType::kQ4_1, 16.0f, 4)},
      {Reader(DType::kU4_G128, 16.0f, 5, &rows)}};
  for (const auto& given : readers) {
    SCOPED_TRACE(DTypeName(given.front().codec->dtype));
    const std::vector<float> found = Search(given, false);
    const double error = Error(given, found);
    EXPECT_LT(error, 0.5 * Error(given, ones_));
    for (int step = 0; step <= 20; step += 2) {
      std::vector<float> powers;
      for (const float size : sizes_) {
        powers.push_back(std::pow(size, static_cast<float>(step) / 20.0f));
      }
      // Scales are rounded, after which some weights go to other codes.
      EXPECT_LE(error, 1.005 * Error(given, powers)) << step;
    }
    // Others may be multiplied as well as those divided: around 1.
    const auto [low, high] = std::minmax_element(found.begin(), found.end());
    // Both divided by the root of their product: four roundings, and one here.
    EXPECT_NEAR(*low * *high, 1.0f, 5.01 * 0x1p-24);
    EXPECT_GT(*high, 1.5f);
  }
}

TEST_F(AwqTest, PowersOfTwoWhereOthersMustSeeTheSame) {
  MakeInputs(16.0f);
  const AwqReader readers[] = {Reader(DType::kQ4_0, 16.0f, 2)};
  const std::vector<float> found = Search(readers, true);
  for (size_t i = 0; i < found.size(); ++i) {
    int exponent = 0;
    EXPECT_EQ(std::frexp(found[i], &exponent), 0.5f) << i;
  }
  EXPECT_LT(Error(readers, found), 0.5 * Error(readers, ones_));
}

// Where no scales gain anything there are none that lose.
TEST_F(AwqTest, NeverWorseThanWithout) {
  for (const float outlier : {1.0f, 0.25f}) {
    MakeInputs(outlier);
    const AwqReader readers[] = {Reader(DType::kQ4_0, 1.0f, 2),
                                 Reader(DType::kIQ4_NL, 1.0f, 3)};
    EXPECT_LE(Error(readers, Search(readers, false)),
              1.0001 * Error(readers, ones_));
  }
}

TEST_F(AwqTest, InputsThatAreNeverThereHaveFiniteScales) {
  MakeInputs(16.0f);
  const AwqReader readers[] = {Reader(DType::kQ4_0, 16.0f, 2)};
  sizes_[7] = 0.0f;
  diagonal_[7] = 0.0f;
  for (const float scale : Search(readers, false)) {
    EXPECT_GT(scale, 1e-4f);
    EXPECT_LT(scale, 1e4f);
  }
  std::fill(sizes_.begin(), sizes_.end(), 0.0f);
  EXPECT_EQ(Search(readers, false), ones_);
}

}  // namespace
}  // namespace inlay
