// Layers that share weights: what their parts read, and that calibration, which
// goes layer by layer, is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/quantize/calibration.h"
#include "core/quantize/linear_inputs.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SharedLayersTest, InputsOfASharedTransformer) {
  const auto device = Cpu(1);
  const auto spec = DescribeDecoder(Open("zamba2", "config.json"), *device);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::string layer = "model.layers.1.";
  const std::string shared = layer + "shared_transformer.";
  const std::string mlp = shared + "feed_forward.";
  std::vector<std::vector<std::string>> read;
  std::vector<std::string> norms;
  for (const LinearInput& input : InputsOf(spec->layers[1])) {
    auto& names = read.emplace_back();
    for (const LinearSpec* reader : input.readers) {
      names.push_back(reader->name);
    }
    norms.push_back(input.norm == nullptr ? "" : input.norm->name);
  }
  ASSERT_GE(read.size(), 7u);
  EXPECT_THAT(read[0], ElementsAre(shared + "self_attn.q_proj",
                                   shared + "self_attn.k_proj",
                                   shared + "self_attn.v_proj"));
  EXPECT_EQ(norms[0], shared + "input_layernorm");
  EXPECT_THAT(read[1], ElementsAre(shared + "self_attn.o_proj"));
  EXPECT_THAT(read[2], ElementsAre(mlp + "gate_up_proj",
                                   mlp + "gate_up_proj_adapter_list.0.0"));
  EXPECT_EQ(norms[2], shared + "pre_ff_layernorm");
  EXPECT_THAT(read[3], ElementsAre(mlp + "gate_up_proj_adapter_list.0.1"));
  EXPECT_THAT(read[4], ElementsAre(mlp + "down_proj"));
  EXPECT_THAT(read[5], ElementsAre(layer + "linear"));
  EXPECT_THAT(read[6], ElementsAre(layer + "mamba_decoder.mamba.in_proj"));
}

TEST(SharedLayersTest, CalibrationIsRefused) {
  const auto device = Cpu(1);
  auto stream = device->CreateStream();
  ASSERT_TRUE(stream.ok());
  for (const char* model : {"zamba2", "albert_labels"}) {
    const auto made = Calibration::Create(
        Open(model, "config.json"), {{1, 2, 3}}, *device, **stream, nullptr);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented) << model;
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr("share their weights"));
  }
}

}  // namespace
}  // namespace inlay
