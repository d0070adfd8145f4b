#include "core/quantize/smooth_quant.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/model/decoder_spec.h"
#include "core/quantize/linear_inputs.h"

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

// Laurel reads what is normed and adds it to its sum: a norm that is divided
// by what matrices are multiplied by would change that.
TEST(SmoothQuantTest, NormsThatLaurelReadsAreNoneOfTheirs) {
  AttentionSpec attention;
  attention.num_heads = attention.num_kv_heads = 1;
  attention.head_dim = 8;
  attention.qkv = {{"q", 8, 8}, {"k", 8, 8}, {"v", 8, 8}};
  attention.output = {"o", 8, 8};
  LayerSpec layer;
  layer.blocks.push_back(
      {.pre_norm = {NormKind::kRms, "norm", 1e-6}, .part = attention});
  ASSERT_NE(InputsOf(layer).at(0).norm, nullptr);
  layer.blocks[0].laurel = LaurelSpec{};
  EXPECT_EQ(InputsOf(layer).at(0).norm, nullptr);
}

}  // namespace
}  // namespace inlay
