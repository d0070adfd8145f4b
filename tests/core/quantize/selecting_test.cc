// Methods with calibration on models whose layers select keys: DeepSeek sparse
// attention, layers that share a selection, DeepSeek-V4's compressed keys.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "core/quantize/calibration.h"
#include "core/quantize/linear_inputs.h"
#include "core/quantize/quantize.h"
#include "tests/core/quantize/expert_files.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

using ::inlay::testing::TriedWith;

class Selecting : public ExpertsTest {
 protected:
  // What the norm before a part and a layer that reads it make of an input, by
  // channel and output.
  std::vector<float> Products(const ModelFiles& files, const std::string& norm,
                              const std::string& layer) {
    const std::vector<float> scales = Values(files, norm + ".weight");
    std::vector<float> products = Values(files, layer + ".weight");
    for (size_t i = 0; i < products.size(); ++i) {
      products[i] *= scales[i % scales.size()];
    }
    return products;
  }
};

// All inputs of all layers, not one alone: each layer's own sequence, with the
// selection of a layer before it.
TEST_F(Selecting, LayersReadWhatTheyDoInOneRun) {
  for (const char* model :
       {"deepseek_v32", "glm_moe_dsa", "deepseek_v4", "deepseek_v4_rates",
        "longcat_flash", "bailing_hybrid", "axk2"}) {
    SCOPED_TRACE(model);
    const ModelFiles files = Open(Golden(model));
    // Far more tokens than a query sees keys.
    const TokenSequences sequences =
        Sequences(3, 60, files.config["vocab_size"].get<int32_t>());
    const auto spec = DescribeDecoder(files, *device_);
    ASSERT_TRUE(spec.ok()) << spec.status();
    Hessians hessians;
    for (const LayerSpec& layer : spec->layers) {
      for (const LinearInput& input : InputsOf(layer)) {
        hessians.emplace(input.name(), Hessian(input.size(), false));
      }
    }
    const auto calibration =
        Calibration::Create(files, sequences, *device_, *stream_, nullptr);
    ASSERT_TRUE(calibration.ok()) << calibration.status();
    Hessians unused;
    for (int i = 0; i < (*calibration)->num_layers(); ++i) {
      // As methods do: once for what is asked, once more to move on.
      ASSERT_TRUE((*calibration)->Collect(i, false, &hessians).ok());
      ASSERT_TRUE((*calibration)->Collect(i, true, &unused).ok());
    }
    InputRecorder recorder;
    Run(files, sequences, &recorder, true);
    for (const auto& [name, hessian] : hessians) {
      SCOPED_TRACE(name);
      const Rows& rows = recorder.rows[name];
      ASSERT_EQ(hessian.tokens(), static_cast<int64_t>(rows.size()));
      for (size_t i = 0; !rows.empty() && i < rows[0].size(); ++i) {
        double sum = 0;
        for (const auto& row : rows) sum += double{row[i]} * row[i];
        ASSERT_EQ(hessian.diagonal()[i], sum);
      }
    }
  }
}

// What decides which keys are seen reads the norm that scales are divided out
// of, keeps its type, and sees to the bit what it saw.
TEST_F(Selecting, WhatDecidesSeesWhatItSaw) {
  const std::string out = folder_ + "/model";
  const std::map<std::string, std::vector<std::string>> deciding = {
      {"deepseek_v32",
       {"model.layers.1.input_layernorm",
        "model.layers.1.self_attn.indexer.weights_proj"}},
      {"deepseek_v4",
       {"layers.1.attn_norm", "layers.1.attn.indexer.weights_proj",
        "layers.1.attn.compressor.wkv", "layers.1.attn.compressor.wgate",
        "layers.1.attn.indexer.compressor.wkv",
        "layers.1.attn.indexer.compressor.wgate"}}};
  constexpr std::pair<const char*, QuantizeMethod> kTypes[] = {
      {"awq_g32", QuantizeMethod::kAwq},
      {"w8a8_int8", QuantizeMethod::kSmoothQuant}};
  size_t turn = 0;
  for (const auto& [model, names] : deciding) {
    for (size_t t = 0; t < std::size(kTypes); ++t) {
      if (!TriedWith(turn, t, std::size(kTypes))) continue;
      const auto& [type, method] = kTypes[t];
      SCOPED_TRACE(model + " " + type);
      const ModelFiles files = Open(Golden(model));
      const auto report = QuantizeModel(files, Options(type, method), out);
      ASSERT_TRUE(report.ok()) << report.status();
      const ModelFiles rounded = Open(out);
      const std::string& norm = names.front();
      // AWQ may find that nothing is to be gained here.
      if (method == QuantizeMethod::kSmoothQuant) {
        EXPECT_NE(Values(files, norm + ".weight"),
                  Values(rounded, norm + ".weight"));
      }
      for (size_t i = 1; i < names.size(); ++i) {
        EXPECT_EQ(Products(files, norm, names[i]),
                  Products(rounded, norm, names[i]))
            << names[i];
      }
      std::filesystem::remove_all(out);
    }
    ++turn;
  }
}

// No file of DeepSeek-V4 but a folder; as LogitsOfOtherTokensAreCloser.
TEST_F(Selecting, LogitsOfDeepseekV4AreCloser) {
  const std::string out = folder_ + "/model";
  const ModelFiles files = WithOutliers("deepseek_v4");
  const TokenSequences tokens = Others(6);
  const Rows wanted = Run(files, tokens, nullptr);
  for (const auto& [type, method] :
       {std::pair{"u4_g32", QuantizeMethod::kImportance},
        std::pair{"u4_g32", QuantizeMethod::kGptq},
        std::pair{"awq_g32", QuantizeMethod::kAwq}}) {
    SCOPED_TRACE(QuantizeMethodName(method));
    double errors[2];
    for (const bool by_method : {false, true}) {
      QuantizeOptions options =
          Options(type, by_method ? method : QuantizeMethod::kNearest);
      options.tensor_types = {"*.attn.*=bf16"};
      const auto report = QuantizeModel(files, options, out);
      ASSERT_TRUE(report.ok()) << report.status();
      errors[by_method ? 1 : 0] = LogitsError(out, wanted, tokens);
      std::filesystem::remove_all(out);
    }
    // Of quality, not derived.
    EXPECT_LT(errors[1], 0.85 * errors[0]);
  }
}

// Indexers rounded too: what queries see changes here and there, so that errors
// are not as close as elsewhere. Every model of types of each method.
TEST_F(Selecting, Folders) {
  const std::string out = folder_ + "/model";
  const TokenSequences tokens = Others(4);
  const std::pair<const char*, std::vector<size_t>> cases[] = {
      {"deepseek_v32", {0, 2, 3}},
      {"glm_moe_dsa", {1, 2, 4}},
      {"deepseek_v4_rates", {1, 2, 3}}};
  size_t turn = 0;
  for (const auto& [model, types] : cases) {
    SCOPED_TRACE(model);
    const Rows wanted = Run(Open(Golden(model)), tokens, nullptr);
    for (size_t i = 0; i < types.size(); ++i) {
      if (!TriedWith(turn, i, types.size())) continue;
      const auto& [type, method] = kFolderTypes[types[i]];
      SCOPED_TRACE(type);
      double errors[2];
      for (const bool by_method : {false, true}) {
        const auto report = QuantizePath(
            Golden(model),
            Options(type, by_method ? method : QuantizeMethod::kNearest), out);
        ASSERT_TRUE(report.ok()) << report.status();
        errors[by_method ? 1 : 0] = LogitsError(out, wanted, tokens);
        std::filesystem::remove_all(out);
      }
      EXPECT_LT(errors[1], 2 * errors[0]);
    }
    ++turn;
  }
}

}  // namespace
}  // namespace inlay
