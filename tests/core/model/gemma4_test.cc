// Gemma 4's configuration, and what its layers without keys and values of their
// own cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "memory/kv/kv_format.h"
#include "tests/support/paths/paths.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

class Gemma4Test : public ::testing::Test {
 protected:
  static ModelFiles Files(const std::string& model) {
    auto files = OpenModelFiles(TestData() + "/models/" + model, {});
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? *std::move(files) : ModelFiles();
  }
  absl::StatusOr<std::unique_ptr<Model>> Plan(const ModelFiles& files) {
    return PlanModel(files, *device_, {});
  }
  // `change`: members of config.json that are others.
  absl::Status Changed(const std::string& model, const Json& change) {
    ModelFiles files = Files(model);
    files.config.update(change);
    return Plan(files).status();
  }

  std::unique_ptr<Device> device_ = *CreateCpuDevice(1, 0);
};

// Two of four layers read the keys and values of the two before them: one copy
// is kept, and counted.
TEST_F(Gemma4Test, SharedKeysAndValuesAreKeptOnce) {
  const auto model = Plan(Files("gemma4_text"));
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.num_layers, 4);
  ASSERT_EQ(info.kv_layers.size(), 2u);
  EXPECT_EQ(info.kv_layers[0].head_dim, 32);
  EXPECT_EQ(info.kv_layers[0].window, 32);
  EXPECT_EQ(info.kv_layers[1].head_dim, 64);
  EXPECT_EQ(info.kv_layers[1].window, 0);
  const KvLayout& layout = (*model)->kv_layout();
  EXPECT_EQ(layout.num_layers(), 2);
  EXPECT_EQ(layout.num_groups(), 2u);
  EXPECT_EQ(layout.bytes_per_token(),
            2 * (KvRowBytes(DType::kF32, 32) + KvRowBytes(DType::kF32, 64)));
}

// A step reads a row of the per-layer table for a token, not the whole.
TEST_F(Gemma4Test, PerLayerTableIsNotReadWhole) {
  const auto model = Plan(Files("gemma4_text"));
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  const uint64_t table = uint64_t{320} * 4 * 32 * 2;
  EXPECT_EQ(info.weight_bytes_per_token, info.weight_bytes - table);
}

TEST_F(Gemma4Test, BadValues) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kUnimplemented = absl::StatusCode::kUnimplemented;
  const struct {
    const char* model;
    Json change;
    absl::StatusCode code;
    const char* in_message;
  } cases[] = {
      {"gemma4_text",
       {{"num_kv_shared_layers", 4}},
       kInvalid,
       "num_kv_shared_layers"},
      {"gemma4_text",
       {{"num_kv_shared_layers", 3}},
       kInvalid,
       "num_kv_shared_layers"},
      {"gemma4_text", {{"global_head_dim", 0}}, kInvalid, "global_head_dim"},
      {"gemma4_text", {{"global_head_dim", 63}}, kInvalid, "head_dim"},
      {"gemma4_text", {{"per_layer_config", 3}}, kInvalid, "per_layer_config"},
      {"gemma4_text",
       {{"per_layer_config", {{"1", {{"head_dim", "x"}}}}}},
       kInvalid,
       "head_dim"},
      {"gemma4_text",
       {{"per_layer_config", {{"1", {{"head_dim", 64}}}}}},
       kUnimplemented,
       "per_layer_config"},
      {"gemma4_text",
       {{"hidden_size_per_layer_input", -1}},
       kInvalid,
       "hidden_size_per_layer_input"},
      {"gemma4_text",
       {{"hidden_size_per_layer_input", 16}},
       kInvalid,
       "per_layer"},
      {"gemma4_text",
       {{"vocab_size_per_layer_input", 300}},
       kUnimplemented,
       "vocab_size_per_layer_input"},
      {"gemma4_text",
       {{"use_bidirectional_attention", "all"}},
       kUnimplemented,
       "use_bidirectional_attention"},
      {"gemma4_moe_text",
       {{"num_global_key_value_heads", 3}},
       kInvalid,
       "num_key_value_heads"},
      {"gemma4_moe_text", {{"num_experts", nullptr}}, kInvalid, "num_experts"},
      {"gemma4_moe_text", {{"top_k_experts", 5}}, kInvalid, "top_k_experts"},
      {"gemma4_moe_text",
       {{"enable_moe_block", 1}},
       kInvalid,
       "enable_moe_block"},
  };
  for (const auto& bad : cases) {
    const absl::Status status = Changed(bad.model, bad.change);
    EXPECT_EQ(status.code(), bad.code) << bad.change << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.in_message));
  }
  EXPECT_TRUE(
      Changed("gemma4_text", {{"use_bidirectional_attention", "vision"}}).ok());
}

}  // namespace
}  // namespace inlay
