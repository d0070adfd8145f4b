// What experts read of calibration, what makes up for tokens that they lack,
// and that files get better by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "core/quantize/calibration.h"
#include "core/quantize/linear_inputs.h"
#include "core/quantize/quantize.h"
#include "tests/core/quantize/expert_files.h"

namespace inlay {
namespace {

TEST_F(ExpertsTest, ReadWhatTheRouterSendsThem) {
  const ModelFiles files = Open(Golden("qwen3_moe"));
  const TokenSequences sequences = Sequences(3, 37, 320);
  InputRecorder recorder;
  Run(files, sequences, &recorder, /*as_calibration=*/true);
  const std::string block = "model.layers.1.mlp.";
  const Rows& x = recorder.rows[block + "gate"];
  ASSERT_EQ(x.size(), 37u + 36 + 35);
  EXPECT_EQ(recorder.rows[block + "experts.0.gate_proj:all"], x);
  const std::vector<float> router = Values(files, block + "gate.weight");
  std::vector<Rows> wanted(8);
  for (const std::vector<float>& row : x) {
    std::vector<std::pair<double, size_t>> logits;
    for (size_t expert = 0; expert < 8; ++expert) {
      double sum = 0;
      for (size_t i = 0; i < 64; ++i) sum += row[i] * router[expert * 64 + i];
      logits.emplace_back(-sum, expert);
    }
    std::sort(logits.begin(), logits.end());
    for (size_t i = 0; i < 2; ++i) wanted[logits[i].second].push_back(row);
  }
  for (size_t expert = 0; expert < 8; ++expert) {
    const std::string name = block + "experts." + std::to_string(expert);
    EXPECT_EQ(recorder.rows[name + ".gate_proj"], wanted[expert]);
    EXPECT_EQ(recorder.rows[name + ".up_proj"], wanted[expert]);
    const auto gate = Values(files, name + ".gate_proj.weight");
    const auto up = Values(files, name + ".up_proj.weight");
    const Rows& inner = recorder.rows[name + ".down_proj"];
    ASSERT_EQ(inner.size(), wanted[expert].size());
    for (size_t t = 0; t < inner.size(); ++t) {
      for (size_t i = 0; i < 32; ++i) {
        double g = 0, u = 0, g_size = 0, u_size = 0;
        for (size_t j = 0; j < 64; ++j) {
          const double x = wanted[expert][t][j];
          g += x * gate[i * 64 + j];
          u += x * up[i * 64 + j];
          g_size += std::abs(x * gate[i * 64 + j]);
          u_size += std::abs(x * up[i * 64 + j]);
        }
        // Sums of 64 products in float32; SiLU's slope is at most 1.1, and it
        // and the product err by 10 of their own.
        const double silu = g / (1 + std::exp(-g));
        ASSERT_NEAR(inner[t][i], silu * u,
                    0x1p-24 * (64 * (1.1 * g_size * std::abs(u) +
                                     u_size * std::abs(silu)) +
                               10.1 * std::abs(silu * u)) +
                        1e-12);
      }
    }
  }

  // The same, a layer at a time, as sums.
  const auto calibration =
      Calibration::Create(files, sequences, *device_, *stream_, nullptr);
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  Hessians hessians;
  for (int expert = 0; expert < 8; ++expert) {
    const std::string name = block + "experts." + std::to_string(expert);
    hessians.emplace(name + ".gate_proj", Hessian(64, true));
    hessians.emplace(name + ".down_proj", Hessian(32, true));
  }
  for (int i = 0; i < (*calibration)->num_layers(); ++i) {
    ASSERT_TRUE((*calibration)->Collect(i, true, &hessians).ok());
  }
  for (auto& [name, hessian] : hessians) {
    SCOPED_TRACE(name);
    const Rows& rows = recorder.rows[name];
    ASSERT_EQ(hessian.tokens(), static_cast<int64_t>(rows.size()));
    const auto n = static_cast<size_t>(hessian.inputs());
    const std::vector<float> matrix = hessian.TakeMatrix();
    for (size_t i = 0; !rows.empty() && i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0, size = 0;
        for (const auto& row : rows) {
          sum += double{row[i]} * row[j];
          size += std::abs(double{row[i]} * row[j]);
        }
        // A rounding a token, in any order.
        ASSERT_NEAR(matrix[i * n + j], sum,
                    0x1p-24 * static_cast<double>(rows.size()) * size + 1e-30);
      }
    }
  }
}

// Inputs in the order of a model's matrices: nothing is collected twice where
// experts go one after another.
TEST_F(ExpertsTest, InputsOfAMixture) {
  const ModelFiles files = Open(Golden("qwen2_moe"));
  const auto spec = DescribeDecoder(files, *device_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto inputs = InputsOf(spec->layers[0]);
  // Attention's two; all tokens'; six experts' twice; the shared one's down.
  ASSERT_EQ(inputs.size(), 2u + 1 + 12 + 1);
  const std::string block = "model.layers.0.mlp.";
  EXPECT_EQ(inputs[2].name(), block + "shared_expert.gate_proj");
  EXPECT_EQ(inputs[2].readers.size(), 2u);
  ASSERT_EQ(inputs[2].kept.size(), 2u);
  EXPECT_EQ(inputs[2].kept[0]->name, block + "gate");
  EXPECT_EQ(inputs[2].kept[1]->name, block + "shared_expert_gate");
  ASSERT_NE(inputs[2].norm, nullptr);
  for (size_t expert = 0; expert < 6; ++expert) {
    const LinearInput& input = inputs[3 + expert];
    const LinearInput& inner = inputs[9 + expert];
    const std::string name = block + "experts." + std::to_string(expert);
    EXPECT_EQ(input.name(), name + ".gate_proj");
    EXPECT_EQ(input.readers.size(), 2u);
    EXPECT_EQ(input.common, 2);
    EXPECT_EQ(input.norm, nullptr);
    EXPECT_EQ(inner.name(), name + ".down_proj");
    EXPECT_EQ(inner.common, -1);
    ASSERT_NE(inner.producer, nullptr);
    EXPECT_EQ(inner.producer->name, name + ".up_proj");
    EXPECT_TRUE(input.is_experts && inner.is_experts);
  }
  EXPECT_FALSE(inputs[15].is_experts);
  // What is cut off is not linear; without a shared expert the input is told of
  // as all experts'.
  const auto cut = DescribeDecoder(Open(Golden("gpt_oss")), *device_);
  ASSERT_TRUE(cut.ok());
  const auto others = InputsOf(cut->layers[0]);
  EXPECT_EQ(others[2].name(), "model.layers.0.mlp.experts.0.gate_proj:all");
  EXPECT_EQ(others[2].size(), 64);
  EXPECT_EQ(others.back().producer, nullptr);
}

// A mixture and the MLP beside it read what one norm gives: whoever divides it
// multiplies columns of both.
TEST_F(ExpertsTest, InputsOfPartsBehindOneNorm) {
  const auto spec = DescribeDecoder(Open(Golden("longcat_flash")), *device_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  LayerSpec layer = spec->layers[0];
  auto& moe = std::get<MoeSpec>(layer.blocks[1].part);
  ASSERT_GT(moe.routing.num_experts, static_cast<int>(moe.experts.size()));
  // Some experts give back what they read; then none do.
  for (const bool divided : {false, true}) {
    if (divided) moe.routing.num_experts = static_cast<int>(moe.experts.size());
    int found = 0;
    for (const LinearInput& input : InputsOf(layer)) {
      if (input.first_expert == nullptr) continue;
      ++found;
      EXPECT_EQ(input.name(), "model.layers.0.mlps.0.gate_proj");
      EXPECT_EQ(input.readers.size(), 2u);
      EXPECT_EQ(input.first_expert->name,
                "model.layers.0.mlp.experts.0.gate_proj");
      ASSERT_EQ(input.norm != nullptr, divided);
      if (divided) {
        EXPECT_EQ(input.norm->name,
                  "model.layers.0.post_attention_layernorm.0");
      }
    }
    EXPECT_EQ(found, 1);
  }
}

// Scales that were divided out of a norm and not multiplied into all that read
// it, or that experts without matrices gave back, change everything. Not
// derived: as Mixtures has it.
TEST_F(ExpertsTest, FoldersOfPartsBehindOneNorm) {
  const std::string out = folder_ + "/model";
  const ModelFiles files = Open(Golden("longcat_flash"));
  const int vocab = files.config["vocab_size"].get<int>();
  const TokenSequences tokens = Sequences(2, 50, vocab);
  const Rows wanted = Run(files, tokens, nullptr);
  for (const auto& [type, method] :
       {std::pair{"w8a8_int8", QuantizeMethod::kSmoothQuant},
        std::pair{"i8_channel", QuantizeMethod::kGptq}}) {
    SCOPED_TRACE(type);
    double errors[2];
    for (const bool by_method : {false, true}) {
      QuantizeOptions options =
          Options(type, by_method ? method : QuantizeMethod::kNearest);
      options.calibration_sequences = Sequences(6, 40, vocab);
      const auto report = QuantizeModel(files, options, out);
      ASSERT_TRUE(report.ok()) << report.status();
      errors[by_method ? 1 : 0] = LogitsError(out, wanted, tokens);
      std::filesystem::remove_all(out);
    }
    EXPECT_LT(errors[0], 0.1);
    EXPECT_LT(errors[1], 1.5 * errors[0] + 0.002);
  }
}

TEST_F(ExpertsTest, WhatMakesUpForTokens) {
  const std::vector<float> x = {1, 2, -3, 0.5f, 0, 2};
  const std::vector<float> y = {2, 0, 1, -4, 1, 1};
  Hessian all(2, true), own(2, true);
  ASSERT_TRUE(all.Add(FloatView(x.data(), 3, 2, 2), *stream_).ok());
  ASSERT_TRUE(own.Add(FloatView(y.data(), 3, 2, 2), *stream_).ok());
  // Three of them and six of the mean of those: as twice the others.
  Hessian both = own;
  both.AddMeanOf(all, 6);
  EXPECT_EQ(both.tokens(), 9);
  EXPECT_FLOAT_EQ(static_cast<float>(both.diagonal()[0]), 6 + 2 * 10);
  EXPECT_FLOAT_EQ(static_cast<float>(both.diagonal()[1]), 17 + 2 * 8.25f);
  EXPECT_FLOAT_EQ(both.MeanMagnitudes()[0], (4 + 2 * 4) / 9.0f);
  EXPECT_EQ(both.largest(), (std::vector<float>{3, 4}));
  EXPECT_FLOAT_EQ(both.TakeMatrix()[2], -3 + 2 * (2 - 1.5f));
  // Of no tokens: the others' mean alone.
  Hessian none(2, true);
  none.AddMeanOf(all, 3);
  EXPECT_FLOAT_EQ(none.TakeMatrix()[2], 0.5f);
  // Alike: the mean square of both inputs, 23 / 6, three times.
  Hessian alike = own;
  alike.AddIndependent(3, true);
  EXPECT_FLOAT_EQ(static_cast<float>(alike.diagonal()[0]), 6 + 11.5f);
  EXPECT_FLOAT_EQ(static_cast<float>(alike.diagonal()[1]), 17 + 11.5f);
  EXPECT_FLOAT_EQ(alike.MeanMagnitudes()[0], (4 + 1.5f * 3) / 6);
  // Its own: the diagonal doubles.
  Hessian apart = own;
  apart.AddIndependent(3, false);
  EXPECT_FLOAT_EQ(static_cast<float>(apart.diagonal()[1]), 34);
  const std::vector<float> matrix = apart.TakeMatrix();
  EXPECT_FLOAT_EQ(matrix[0], 12);
  EXPECT_FLOAT_EQ(matrix[2], -3);
  EXPECT_FLOAT_EQ(matrix[3], 34);
  Hessian unit(2, true);
  unit.AddIndependent(5, true);
  EXPECT_TRUE(unit.Check().ok());
  EXPECT_EQ(unit.TakeMatrix(), (std::vector<float>{5, 0, 0, 5}));
}

// Inputs with outliers and a part in common: what each expert gives for tokens
// that calibration has not had, from the matrices in the files.
TEST_F(ExpertsTest, OutputsOfTheTokensThatComeAreCloser) {
  for (const char* model : {"qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(model);
    const ModelFiles files = WithOutliers(model);
    InputRecorder recorder;
    Run(files, Others(6), &recorder);
    std::map<QuantizeMethod, double> errors;
    for (const QuantizeMethod method :
         {QuantizeMethod::kNearest, QuantizeMethod::kImportance,
          QuantizeMethod::kGptq}) {
      const auto report = QuantizeModel(files, Options("q4_0", method), Out());
      ASSERT_TRUE(report.ok()) << report.status();
      const ModelFiles rounded = Open(Out());
      double error = 0, outputs = 0;
      for (const auto& [layer, rows] : recorder.rows) {
        if (layer.find(".experts.") == layer.npos || layer.ends_with(":all")) {
          continue;
        }
        const std::string name = layer + ".weight";
        const std::vector<float> wanted = Values(files, name);
        error += Energy(rows, Minus(Values(rounded, name), wanted));
        outputs += Energy(rows, wanted);
      }
      errors[method] = std::sqrt(error / outputs);
    }
    const double nearest = errors[QuantizeMethod::kNearest];
    // Of quality: what methods gain here, not derived.
    EXPECT_LT(errors[QuantizeMethod::kImportance], 0.95 * nearest);
    EXPECT_LT(errors[QuantizeMethod::kGptq], 0.8 * nearest);
  }
}

TEST_F(ExpertsTest, LogitsOfOtherTokensAreCloser) {
  size_t turn = 0;
  for (const char* model :
       {"qwen3_moe", "mixtral", "deepseek_v3", "deepseek_v32", "glm_moe_dsa"}) {
    SCOPED_TRACE(model);
    const ModelFiles files = WithOutliers(model);
    const TokenSequences tokens = Others(6);
    const Rows wanted = Run(files, tokens, nullptr);
    double nearest = 0;
    for (const QuantizeMethod method :
         NearestAnd({QuantizeMethod::kImportance, QuantizeMethod::kGptq,
                     QuantizeMethod::kAwq},
                    turn++)) {
      SCOPED_TRACE(QuantizeMethodName(method));
      QuantizeOptions options = Options("q4_0", method);
      options.tensor_types = {"*self_attn*=f32", "*embed*=f32", "lm_head*=f32"};
      const auto report = QuantizeModel(files, options, Out());
      ASSERT_TRUE(report.ok()) << report.status();
      const double error = LogitsError(Out(), wanted, tokens);
      if (method == QuantizeMethod::kNearest) {
        nearest = error;
      } else {
        // Of quality, not derived.
        EXPECT_LT(error, 0.85 * nearest);
      }
    }
  }
}

}  // namespace
}  // namespace inlay
