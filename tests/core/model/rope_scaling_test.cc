#include "core/model/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace inlay {
namespace {

// Of two implementations of powers in float32, each as far off as
// UnscaledIsTheClosedForm has it, of a base of at most 150,000: (2 + 12) 2^-23
// each.
constexpr double kRelative = 2 * 14 * 0x1p-23;

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], kRelative * want[i]) << "pair " << i;
  }
}

RopeSpec Spec(RopeScaling scaling, int dim, double theta, double factor) {
  RopeSpec spec;
  spec.scaling = scaling;
  spec.rotary_dim = dim;
  spec.theta = theta;
  spec.factor = factor;
  return spec;
}

TEST(RopeScaling, UnscaledIsTheClosedForm) {
  for (const int dim : {2, 16, 96, 256}) {
    for (const double theta : {10000.0, 1e6}) {
      const auto rope =
          ComputeRopeFrequencies(Spec(RopeScaling::kNone, dim, theta, 1));
      ASSERT_EQ(rope.inv_freq.size(), static_cast<size_t>(dim / 2));
      for (int i = 0; i < dim / 2; ++i) {
        const double want = std::pow(theta, -2.0 * i / dim);
        // The float32 exponent is off by 2^-24 relative at most, which the
        // power multiplies by its logarithm.
        EXPECT_NEAR(rope.inv_freq[static_cast<size_t>(i)], want,
                    want * (2 + std::log(theta)) * 0x1p-23);
      }
      EXPECT_EQ(rope.attention_factor, 1.0f);
      EXPECT_TRUE(rope.long_inv_freq.empty());
      EXPECT_EQ(rope.threshold, 0);
    }
  }
}

TEST(RopeScaling, LinearDivides) {
  const auto plain =
      ComputeRopeFrequencies(Spec(RopeScaling::kNone, 32, 1e4, 1));
  const auto rope =
      ComputeRopeFrequencies(Spec(RopeScaling::kLinear, 32, 1e4, 4));
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    EXPECT_EQ(rope.inv_freq[i], plain.inv_freq[i] / 4);
  }
}

TEST(RopeScaling, ProportionalTurnsTheFirstPairsOfAWholeHead) {
  const auto plain =
      ComputeRopeFrequencies(Spec(RopeScaling::kNone, 32, 1e4, 1));
  RopeSpec spec = Spec(RopeScaling::kProportional, 32, 1e4, 4);
  spec.rotated_pairs = 5;
  const auto rope = ComputeRopeFrequencies(spec);
  ASSERT_EQ(rope.inv_freq.size(), 16u);
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    EXPECT_EQ(rope.inv_freq[i], i < 5 ? plain.inv_freq[i] / 4 : 0.0f);
  }
  EXPECT_EQ(rope.attention_factor, 1.0f);
}

// The numbers below come from the formulas evaluated in numpy's float32.
TEST(RopeScaling, Yarn) {
  RopeSpec spec = Spec(RopeScaling::kYarn, 16, 1e4, 4);
  spec.original_max = 64;
  const auto rope = ComputeRopeFrequencies(spec);
  ExpectNear(rope.inv_freq,
             {1.0f, 0.237170815f, 0.049999997f, 0.00790569466f, 0.00249999994f,
              0.000790569466f, 0.000250000012f, 7.90569466e-05f});
  EXPECT_FLOAT_EQ(rope.attention_factor, 1.138629436f);
}

TEST(RopeScaling, YarnWithoutTruncation) {
  RopeSpec spec = Spec(RopeScaling::kYarn, 16, 150000, 32);
  spec.original_max = 4096;
  spec.truncate = false;
  ExpectNear(
      ComputeRopeFrequencies(spec).inv_freq,
      {1.0f, 0.225418001f, 0.0508132726f, 0.00679495931f, 0.000456483918f,
       1.8188337e-05f, 4.09997847e-06f, 9.24208962e-07f});
}

TEST(RopeScaling, YarnAttentionFactor) {
  RopeSpec spec = Spec(RopeScaling::kYarn, 16, 1e4, 40);
  spec.original_max = 4096;
  spec.mscale = 0.707;
  spec.mscale_all_dim = 0.5;
  EXPECT_FLOAT_EQ(ComputeRopeFrequencies(spec).attention_factor, 1.064468904f);
  spec.mscale_all_dim = 0.707;
  EXPECT_EQ(ComputeRopeFrequencies(spec).attention_factor, 1.0f);
  spec.attention_factor = 0.25;
  EXPECT_EQ(ComputeRopeFrequencies(spec).attention_factor, 0.25f);
  spec.attention_factor.reset();
  spec.factor = 1;
  EXPECT_EQ(ComputeRopeFrequencies(spec).attention_factor, 1.0f);
}

TEST(RopeScaling, Llama3) {
  RopeSpec spec = Spec(RopeScaling::kLlama3, 32, 1e4, 8);
  spec.original_max = 64;
  ExpectNear(
      ComputeRopeFrequencies(spec).inv_freq,
      {1.0f, 0.562341332f, 0.244384587f, 0.0643098652f, 0.0130422562f,
       0.0070292661f, 0.00395284733f, 0.00222284929f, 0.00124999997f,
       0.000702926656f, 0.000395284733f, 0.000222284929f, 0.000125000006f,
       7.02926627e-05f, 3.95284733e-05f, 2.22284925e-05f});
}

TEST(RopeScaling, DynamicStretchesTheBaseBeyondTheThreshold) {
  RopeSpec spec = Spec(RopeScaling::kDynamic, 16, 1e4, 4);
  spec.original_max = 128;
  const auto rope = ComputeRopeFrequencies(spec);
  const auto plain =
      ComputeRopeFrequencies(Spec(RopeScaling::kNone, 16, 1e4, 1));
  EXPECT_EQ(rope.inv_freq, plain.inv_freq);
  ExpectNear(rope.long_inv_freq,
             {1.0f, 0.219212472f, 0.0480541028f, 0.0105340583f, 0.00230919686f,
              0.000506204728f, 0.000110966386f, 2.43252125e-05f});
  EXPECT_EQ(rope.threshold, 128);
  EXPECT_EQ(rope.attention_factor, 1.0f);
}

TEST(RopeScaling, LongRope) {
  RopeSpec spec = Spec(RopeScaling::kLongRope, 8, 1e4, 8);
  spec.original_max = 64;
  spec.short_factor = {1, 1, 1, 1};
  spec.long_factor = {1, 1.25, 1.5, 2};
  const auto rope = ComputeRopeFrequencies(spec);
  ExpectNear(rope.inv_freq, {1.0f, 0.1f, 0.01f, 0.001f});
  ExpectNear(rope.long_inv_freq,
             {1.0f, 0.0799999982f, 0.00666666683f, 0.000500000024f});
  EXPECT_EQ(rope.threshold, 64);
  EXPECT_FLOAT_EQ(rope.attention_factor, 1.224744871f);
  spec.factor = 1;
  EXPECT_EQ(ComputeRopeFrequencies(spec).attention_factor, 1.0f);
  // log(1) is 0: no division by it.
  spec.factor = 8;
  spec.original_max = 1;
  EXPECT_EQ(ComputeRopeFrequencies(spec).attention_factor, 1.0f);
}

TEST(RopeScaling, Factors) {
  RopeSpec spec = UnitFactor();
  EXPECT_EQ(ComputeRopeFrequencies(spec).FactorAt(12345), 1.0f);
  spec.temperature = 0.1f;
  spec.temperature_span = 8192;
  const auto rope = ComputeRopeFrequencies(spec);
  EXPECT_EQ(rope.inv_freq, std::vector<float>{0.0f});
  EXPECT_EQ(rope.FactorAt(0), 1.0f);
  EXPECT_EQ(rope.FactorAt(8190), 1.0f);
  EXPECT_FLOAT_EQ(rope.FactorAt(8191), 1.0693147f);       // 0.1 ln 2
  EXPECT_FLOAT_EQ(rope.FactorAt(3 * 8192), 1.13862944f);  // 0.1 ln 4
}

TEST(RopeScaling, Names) {
  EXPECT_EQ(RopeScalingFromName("default"), RopeScaling::kNone);
  EXPECT_EQ(RopeScalingFromName("su"), RopeScaling::kLongRope);
  EXPECT_EQ(RopeScalingFromName("Linear"), std::nullopt);
}

}  // namespace
}  // namespace inlay
