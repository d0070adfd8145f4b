#include "core/quantize/smooth_quant.h"

#include <gtest/gtest.h>

#include <cmath>

namespace inlay {
namespace {

// Two powers off by a unit in the last place, their quotient, the operation on
// it, and the middle's product and root: 8 roundings.
constexpr float kRoundings = 8 * 0x1p-24f;

TEST(SmoothQuantTest, InputsAndWeightsMeetInTheMiddle) {
  const std::vector<float> inputs = {64.0f, 1.0f, 0.25f, 3.0f};
  const std::vector<float> weights = {0.5f, 2.0f, 0.25f, 0.01f};
  const auto scales = SmoothScales(inputs, weights, 0.5f);
  ASSERT_EQ(scales.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float middle = std::sqrt(inputs[i] * weights[i]);
    EXPECT_NEAR(inputs[i] / scales[i], middle, kRoundings * middle);
    EXPECT_NEAR(weights[i] * scales[i], middle, kRoundings * middle);
  }
}

TEST(SmoothQuantTest, AlphaSaysWhoTakesTheSpread) {
  const std::vector<float> inputs = {64.0f, 1.0f, 0.25f};
  const std::vector<float> weights = {0.5f, 2.0f, 0.25f};
  const auto to_inputs = SmoothScales(inputs, weights, 0.0f);
  const auto to_weights = SmoothScales(inputs, weights, 1.0f);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_NEAR(weights[i] * to_inputs[i], 1.0f, kRoundings);
    EXPECT_NEAR(inputs[i] / to_weights[i], 1.0f, kRoundings);
  }
}

TEST(SmoothQuantTest, WhatIsNeverThereStays) {
  const std::vector<float> inputs = {0.0f, 2.0f, 1e-30f};
  const std::vector<float> weights = {1.0f, 0.0f, 1.0f};
  const auto scales = SmoothScales(inputs, weights, 0.5f);
  EXPECT_EQ(scales[0], 1.0f);
  EXPECT_EQ(scales[1], 1.0f);
  EXPECT_FLOAT_EQ(scales[2], std::sqrt(2e-5f));
  const std::vector<float> nothing = {0.0f};
  for (const float scale : SmoothScales(nothing, nothing, 0.5f)) {
    EXPECT_EQ(scale, 1.0f);
  }
}

}  // namespace
}  // namespace inlay
