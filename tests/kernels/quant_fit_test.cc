// What encoders do with vectors, on every SIMD target, against the same an
// element at a time (fit.h, BlockGrid::NearestLevel): the same bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/quant/fit.h"
#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/nearest_levels.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/row_floats.h"
#include "tests/support/simd_target_loop.h"

namespace inlay {
namespace {

using ::inlay::testing::OnEverySimdTarget;

constexpr uint32_t kSeed = 20;
// More than two of the widest vectors, and a rest.
constexpr int64_t kGroups = 37;

struct Values {
  std::string name;
  std::vector<float> x;
};

// Groups of `size`: Gaussian ones of any magnitude, none, one and all equal, of
// one sign, halves of steps, and the ends of float32.
std::vector<Values> Kinds(int64_t groups, int size) {
  std::mt19937 rng(kSeed);
  std::normal_distribution<float> normal;
  const auto count = static_cast<size_t>(groups * size);
  std::vector<Values> kinds;
  const auto add = [&](const std::string& name, auto value) {
    kinds.push_back({name, std::vector<float>(count)});
    for (size_t i = 0; i < count; ++i) kinds.back().x[i] = value(i);
  };
  add("normal", [&](size_t) { return normal(rng); });
  add("scaled", [&](size_t i) {
    return std::ldexp(normal(rng), static_cast<int>(i / 32 % 200) - 100);
  });
  add("mean", [&](size_t) { return 3.0f + 0.1f * normal(rng); });
  add("negative", [&](size_t) { return -std::abs(normal(rng)); });
  add("zero", [](size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });
  add("equal", [](size_t) { return -0.7f; });
  add("one", [&](size_t i) { return i % 29 == 0 ? normal(rng) : 0.0f; });
  add("halves", [&](size_t) {
    return 0.5f * static_cast<float>(static_cast<int>(rng() % 65) - 32);
  });
  add("tiny", [&](size_t) { return 1e-42f * normal(rng); });
  add("small", [&](size_t) { return 1e-37f * normal(rng); });
  add("huge", [&](size_t) { return 1e37f * normal(rng); });
  add("ends", [&](size_t) {
    const float most = std::numeric_limits<float>::max();
    return rng() % 3 == 0 ? most : rng() % 2 == 0 ? -most : 1.0f;
  });
  return kinds;
}

std::vector<float> Weights(size_t count) {
  std::mt19937 rng(kSeed + 1);
  std::normal_distribution<float> normal;
  std::vector<float> weights(count);
  for (float& weight : weights) weight = std::exp(1.5f * normal(rng));
  for (size_t i = 0; i + 3 < count; i += 5) weights[i] = 0.0f;
  return weights;
}

// NaN where sums overflow, of any bits.
::testing::AssertionResult SameBits(float got, float want) {
  if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want) ||
      (std::isnan(got) && std::isnan(want))) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << got << ", not " << want;
}

float FitScaleByRule(const ScaleRule& rule, const float* x,
                     const float* weights, int size) {
  return FitScale(x, weights, size, rule.first, rule.step, [&](float value) {
    return rule.is_iq4 ? static_cast<float>(kIq4Levels[Iq4Code(value)])
                       : RoundLevel(value, rule.least, rule.most);
  });
}

constexpr ScaleRule kScaleRules[] = {
    {.first = -4.0f, .step = 0.1f, .least = -4.0f, .most = 3.0f},
    {.first = -32.0f, .step = 0.1f, .least = -32.0f, .most = 31.0f},
    {.first = -127.0f, .step = 0.2f, .least = -127.0f, .most = 127.0f},
    kIq4Rule};

TEST(FitGroupsTest, ScalesAreThoseOfOneGroupAtATime) {
  OnEverySimdTarget([] {
    for (const int size : {16, 32}) {
      for (const Values& values : Kinds(kGroups, size)) {
        SCOPED_TRACE(values.name);
        const std::vector<float> some = Weights(values.x.size());
        for (const ScaleRule& rule : kScaleRules) {
          for (const float* weights :
               {static_cast<const float*>(nullptr), some.data()}) {
            std::vector<float> got(kGroups);
            FitScales(rule, values.x.data(), weights, kGroups, size,
                      got.data());
            for (int64_t g = 0; g < kGroups; ++g) {
              const float want =
                  FitScaleByRule(rule, values.x.data() + g * size,
                                 weights == nullptr ? kEqualWeights.data()
                                                    : weights + g * size,
                                 size);
              ASSERT_TRUE(SameBits(got[static_cast<size_t>(g)], want))
                  << "group " << g << " of " << size << ", most " << rule.most;
            }
          }
        }
      }
    }
  });
}

TEST(FitGroupsTest, ScalesAndMinimaAreThoseOfOneGroupAtATime) {
  OnEverySimdTarget([] {
    for (const int size : {16, 32}) {
      for (const Values& values : Kinds(kGroups, size)) {
        SCOPED_TRACE(values.name);
        const std::vector<float> some = Weights(values.x.size());
        for (const AffineRule& rule :
             {AffineRule{3, true}, AffineRule{15, true}, AffineRule{31, true},
              AffineRule{15, false}}) {
          for (const float* weights :
               {static_cast<const float*>(nullptr), some.data()}) {
            std::vector<Affine> got(kGroups);
            FitAffines(rule, values.x.data(), weights, kGroups, size,
                       got.data());
            for (int64_t g = 0; g < kGroups; ++g) {
              const Affine want =
                  FitAffine(values.x.data() + g * size,
                            weights == nullptr ? kEqualWeights.data()
                                               : weights + g * size,
                            size, rule.most, rule.keep_zero);
              const Affine& fit = got[static_cast<size_t>(g)];
              ASSERT_TRUE(SameBits(fit.scale, want.scale))
                  << "group " << g << " of " << size << ", most " << rule.most;
              ASSERT_TRUE(SameBits(fit.min, want.min))
                  << "group " << g << " of " << size << ", most " << rule.most;
            }
          }
        }
      }
    }
  });
}

TEST(FitGroupsTest, ZeroPointsAreThoseOfOneScaleAtATime) {
  OnEverySimdTarget([] {
    for (const int size : {32, 128, 600}) {
      constexpr int64_t kFew = 5;
      for (const Values& values : Kinds(kFew, size)) {
        SCOPED_TRACE(values.name);
        const std::vector<float> some = Weights(values.x.size());
        for (const ZeroPointRule& rule :
             {ZeroPointRule{}, ZeroPointRule{255, 0, DType::kF32},
              ZeroPointRule{15, 8, DType::kF16},
              ZeroPointRule{255, 128, DType::kBF16}}) {
          for (const float* weights :
               {static_cast<const float*>(nullptr), some.data()}) {
            for (int64_t g = 0; g < kFew; ++g) {
              const float* x = values.x.data() + g * size;
              const float* of_group =
                  weights == nullptr ? nullptr : weights + g * size;
              const ZeroPoint got = FitGroupZeroPoint(x, of_group, size, rule);
              const ZeroPoint want = FitZeroPoint(x, of_group, size, rule);
              ASSERT_TRUE(SameBits(got.scale, want.scale))
                  << "group " << g << " of " << size << ", most " << rule.most;
              ASSERT_EQ(got.zero, want.zero)
                  << "group " << g << " of " << size << ", most " << rule.most;
            }
          }
        }
      }
    }
  });
}

// One group reads and writes nothing of others.
TEST(FitGroupsTest, AnyNumberOfGroups) {
  OnEverySimdTarget([] {
    constexpr int kSize = 16;
    const std::vector<float> x = Kinds(kGroups, kSize).front().x;
    std::vector<float> all(kGroups);
    FitScales(kIq4Rule, x.data(), nullptr, kGroups, kSize, all.data());
    for (size_t groups = 1; groups < kGroups; ++groups) {
      const std::vector<float> some(
          x.begin(), x.begin() + static_cast<ptrdiff_t>(groups) * kSize);
      std::vector<float> got(groups + 1, -1.0f);
      FitScales(kIq4Rule, some.data(), nullptr, static_cast<int64_t>(groups),
                kSize, got.data());
      for (size_t g = 0; g < groups; ++g) EXPECT_EQ(got[g], all[g]);
      EXPECT_EQ(got[groups], -1.0f);
    }
  });
}

TEST(NearestLevelsTest, LevelsAreThoseOfOneElementAtATime) {
  OnEverySimdTarget([] {
    for (const BlockCodec* codec : BlockCodecs()) {
      const BlockGrid* grid = codec->grid;
      if (grid == nullptr) continue;
      SCOPED_TRACE(DTypeName(codec->dtype));
      const auto size = static_cast<size_t>(grid->elements);
      for (const Values& values : Kinds(8, grid->elements)) {
        SCOPED_TRACE(values.name);
        for (size_t first = 0; first < values.x.size(); first += size) {
          const float* x = values.x.data() + first;
          GridScales scales;
          grid->fit(x, nullptr, 1, &scales);
          std::vector<int8_t> got(size);
          NearestLevels(*grid, scales, x, got.data());
          for (int i = 0; i < grid->elements; ++i) {
            ASSERT_EQ(got[static_cast<size_t>(i)],
                      grid->NearestLevel(scales, i, x[i]))
                << "element " << i << ": " << x[i];
          }
        }
      }
    }
  });
}

TEST(NearestLevelsTest, ExtremesAndRangesAreThoseOfOneBlockAtATime) {
  OnEverySimdTarget([] {
    for (Values& values : Kinds(kGroups, kPlainBlock)) {
      SCOPED_TRACE(values.name);
      // Equal magnitudes: the first counts.
      for (size_t i = 0; i + 40 < values.x.size(); i += 40) {
        values.x[i + 7] = -values.x[i];
      }
      std::vector<float> extremes(kGroups);
      std::vector<Range> ranges(kGroups);
      FindExtremes(values.x.data(), kGroups, extremes.data());
      FindRanges(values.x.data(), kGroups, ranges.data());
      for (size_t g = 0; g < kGroups; ++g) {
        const float* x = values.x.data() + g * kPlainBlock;
        ASSERT_TRUE(SameBits(extremes[g], Extreme(x, kPlainBlock))) << g;
        const Range want = RangeOf(x, kPlainBlock);
        ASSERT_TRUE(SameBits(ranges[g].least, want.least)) << g;
        ASSERT_TRUE(SameBits(ranges[g].most, want.most)) << g;
      }
    }
  });
}

TEST(NearestLevelsTest, CodesAreThoseOfOneElementAtATime) {
  const float infinity = std::numeric_limits<float>::infinity();
  OnEverySimdTarget([&] {
    for (const Values& values : Kinds(kGroups, kPlainBlock)) {
      SCOPED_TRACE(values.name);
      for (const CodeRule& rule :
           {CodeRule{0.0f, -127.0f, 127.0f}, CodeRule{8.0f, 0.0f, 15.0f}}) {
        std::vector<CodeScale> scales(kGroups);
        for (size_t g = 0; g < kGroups; ++g) {
          const float* x = values.x.data() + g * kPlainBlock;
          const float inverse = rule.most / Extreme(x, kPlainBlock);
          scales[g] = {g % 7 == 0 ? infinity : inverse,
                       g % 3 == 0 ? x[3] : 0.0f};
        }
        std::vector<int8_t> got(values.x.size());
        RoundCodes(rule, values.x.data(), scales.data(), kGroups, got.data());
        for (size_t i = 0; i < got.size(); ++i) {
          const CodeScale& scale = scales[i / kPlainBlock];
          const float code =
              (values.x[i] - scale.min) * scale.inverse + rule.offset;
          ASSERT_EQ(got[i], RoundCode(code, static_cast<int>(rule.least),
                                      static_cast<int>(rule.most)))
              << i << ": " << code;
        }
      }
    }
  });
}

TEST(RowFloatsTest, WidensEveryValueOfSixteenBits) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  // At an odd address, and with a rest of any length.
  std::vector<std::byte> bytes(2 * all.size() + 1);
  std::memcpy(bytes.data() + 1, all.data(), 2 * all.size());
  OnEverySimdTarget([&] {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (size_t count = all.size() - 16; count <= all.size(); ++count) {
        std::vector<float> got(count + 1, -3.0f);
        WidenFloats(dtype, bytes.data() + 1, static_cast<int64_t>(count),
                    got.data());
        for (size_t i = 0; i < count; ++i) {
          const float want =
              dtype == DType::kF16 ? F16ToF32(all[i]) : BF16ToF32(all[i]);
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                    std::bit_cast<uint32_t>(want))
              << i;
        }
        ASSERT_EQ(got[count], -3.0f);
      }
    }
  });
}

TEST(RowFloatsTest, SumsOfSquares) {
  std::mt19937 rng(kSeed);
  std::normal_distribution<float> normal;
  for (size_t count : {0, 1, 15, 16, 17, 100, 4096}) {
    std::vector<float> values(count), rounded(count);
    double differences = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; ++i) {
      values[i] = normal(rng);
      rounded[i] = values[i] + 0.1f * normal(rng);
      const double off = double{values[i]} - double{rounded[i]};
      differences += off * off;
      squares += double{values[i]} * double{values[i]};
    }
    std::vector<SquareSums> sums;
    OnEverySimdTarget([&] {
      sums.push_back(SumSquares(values.data(), rounded.data(),
                                static_cast<int64_t>(count)));
    });
    for (const SquareSums& one : sums) {
      EXPECT_EQ(one.differences, sums.front().differences);
      EXPECT_EQ(one.values, sums.front().values);
      // Positive terms in float64, in any order, on both sides.
      const double roundings = 2.0 * static_cast<double>(count + 3) * 0x1p-53;
      EXPECT_NEAR(one.differences, differences, roundings * differences);
      EXPECT_NEAR(one.values, squares, roundings * squares);
    }
  }
}

}  // namespace
}  // namespace inlay
