// What a layout says of a type of which no other tool's file is at hand.
#include "core/quantize/checkpoint_layout.h"

#include <gtest/gtest.h>

#include "core/formats/model_files.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

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
  const auto settings = [](const char* golden) {
    const auto files = OpenModelFiles(TestData() + "/quantized/" + golden, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? files->config["quantization_config"] : Json();
  };
  Json wanted = settings("ct_fp8_tensor");
  const Json by_token = settings("ct_fp8_channel");
  const char* group = "group_0";
  const char* inputs = "input_activations";
  wanted["config_groups"][group][inputs] =
      by_token["config_groups"][group][inputs];
  EXPECT_EQ(layout->Config({"lm_head"}, false), wanted);
}

}  // namespace
}  // namespace inlay
