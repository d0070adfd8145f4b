// What a layout says of what no other tool's file is at hand of: a type, and
// layers that stay plain.
#include "core/quantize/checkpoint_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/formats/model_files.h"
#include "tests/core/quantize/quantized_files.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

Json GoldenSettings(const char* golden) {
  const auto files = OpenModelFiles(TestData() + "/quantized/" + golden, {});
  EXPECT_TRUE(files.ok()) << files.status();
  return files.ok() ? files->config["quantization_config"] : Json();
}

// Weights as where inputs have one scale too, inputs as where weights have one
// a row: both are held against other tools' files (checkpoint_test.cc).
TEST(CheckpointLayoutTest, OneScaleAndInputsByTheToken) {
  const auto layout =
      MakeCheckpointLayout(*FindCheckpointType("w8a8_fp8_tensor"));
  const auto parts = layout->Parts(256, 512, DType::kBF16);
  auto with_inputs =
      MakeCheckpointLayout(*FindCheckpointType("w8a8_fp8_static"))
          ->Parts(256, 512, DType::kBF16);
  ASSERT_EQ(with_inputs.back().suffix, ".input_scale");
  with_inputs.pop_back();
  ASSERT_EQ(parts.size(), with_inputs.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].suffix, with_inputs[i].suffix);
    EXPECT_EQ(parts[i].dtype, with_inputs[i].dtype);
    EXPECT_EQ(parts[i].shape, with_inputs[i].shape);
  }
  Json wanted = GoldenSettings("ct_fp8_tensor");
  const Json by_token = GoldenSettings("ct_fp8_channel");
  const char* group = "group_0";
  const char* inputs = "input_activations";
  wanted["config_groups"][group][inputs] =
      by_token["config_groups"][group][inputs];
  EXPECT_EQ(layout->Config({{"lm_head"}, false, DType::kBF16}), wanted);
}

// As compressed-tensors' FP8_BLOCK has it: of 128 x 128 the last rows may be
// fewer, and inputs have a scale for each 128 of a token.
TEST(CheckpointLayoutTest, BlocksOfE4M3) {
  const auto layout =
      MakeCheckpointLayout(*FindCheckpointType("w8a8_fp8_block"));
  const auto parts = layout->Parts(576, 384, DType::kBF16);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].suffix, ".weight");
  EXPECT_EQ(parts[0].shape, (std::vector<int64_t>{576, 384}));
  EXPECT_EQ(parts[1].suffix, ".weight_scale");
  EXPECT_EQ(parts[1].dtype, DType::kBF16);
  EXPECT_EQ(parts[1].shape, (std::vector<int64_t>{5, 3}));

  Json wanted = GoldenSettings("ct_fp8_channel");
  Json& group = wanted["config_groups"]["group_0"];
  group["weights"]["strategy"] = "block";
  group["weights"]["block_structure"] = {128, 128};
  group["input_activations"]["strategy"] = "group";
  group["input_activations"]["group_size"] = 128;
  EXPECT_EQ(layout->Config({{"lm_head"}, false, DType::kBF16}), wanted);
}

class PlainLayersTest : public QuantizedFiles {};

// Readers of GPTQ's layout take every linear layer for one of the type unless
// they are told.
TEST_F(PlainLayersTest, GptqFoldersNameThem) {
  QuantizeOptions options = Options("u4_g128", QuantizeMethod::kNearest);
  options.calibration_sequences.clear();
  const std::string folder = folder_ + "/model";
  const auto settings = [&] {
    const auto report = QuantizePath(Golden("llama_bf16"), options, folder);
    EXPECT_TRUE(report.ok()) << report.status();
    const auto files = OpenModelFiles(folder, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? files->config["quantization_config"] : Json();
  };
  const Json all = settings();
  EXPECT_FALSE(all.contains("dynamic"));
  EXPECT_FALSE(all.contains("modules_in_block_to_quantize"));

  options.tensor_types = {"*layers.1.mlp.down_proj*=bf16"};
  const Json some = settings();
  Json pattern;
  pattern["-:model\\.layers\\.1\\.mlp\\.down_proj$"] = Json::object();
  EXPECT_EQ(some["dynamic"], pattern);
  const Json& named = some["modules_in_block_to_quantize"];
  ASSERT_EQ(named.size(), 1u);
  const auto names = [&](const char* name) {
    return std::count(named[0].begin(), named[0].end(), Json(name));
  };
  EXPECT_EQ(names("model.layers.0.mlp.down_proj"), 1);
  EXPECT_EQ(names("model.layers.1.mlp.up_proj"), 1);
  EXPECT_EQ(names("model.layers.1.mlp.down_proj"), 0);
}

}  // namespace
}  // namespace inlay
