// What GGUF files cannot say of families with experts, latents and recurrent
// layers, and what is asked for wrongly.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/quantize/quantize.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/quantize/family_files.h"

namespace inlay {
namespace {

TEST(GgufFamilyErrors, NameWhatCannotBeSaid) {
  const FamilyFiles files;
  const struct {
    const char* model;
    const char* key;
    Json value;
  } cases[] = {{"qwen2_moe", "mlp_only_layers", {1}},
               {"qwen3_moe", "norm_topk_prob", false},
               {"qwen3_moe", "decoder_sparse_step", 2},
               {"mixtral", "sliding_window", 64},
               {"gpt_oss", "swiglu_limit", 6.0},
               {"llama4_text", "attn_scale", 0.4},
               {"deepseek_v3", "rope_interleave", false},
               {"deepseek_v3", "moe_layer_freq", 2},
               {"qwen3_5_text", "attn_output_gate", false},
               {"falcon_h1", "attention_bias", true}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.model);
    SCOPED_TRACE(one.key);
    ModelFiles model = Open(one.model, "config.json");
    model.config[one.key] = one.value;
    const absl::Status status = files.Try(model, {.type = "f32"}).status();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(absl::IsUnimplemented(status) || absl::IsNotFound(status))
        << status;
    if (absl::IsUnimplemented(status)) {
      EXPECT_NE(status.message().find(one.key), std::string::npos) << status;
    }
  }
  // No such family.
  EXPECT_TRUE(absl::IsUnimplemented(
      files.Try(Open("deepseek_v4", "config.json"), {.type = "f32"}).status()));
}

// Nothing in config.json is of the type that it should be: errors, whichever.
TEST(GgufFamilyErrors, AnyConfigIsAnErrorAtMost) {
  const FamilyFiles files;
  for (const char* model :
       {"qwen3_moe", "gpt_oss", "llama4_text", "deepseek_v3", "glm_moe_dsa",
        "qwen3_5_moe_text", "gemma4_moe_text", "granitemoehybrid", "falcon_h1",
        "nemotron_h", "kimi_linear", "lfm2"}) {
    const Json config = Open(model, "config.json").config;
    for (const auto& [key, value] : config.items()) {
      for (const Json& other : {Json::object({{"a", 1}}), Json("text"),
                                Json(-1), Json::array({"b"})}) {
        ModelFiles changed = Open(model, "config.json");
        changed.config[key] = other;
        const auto report = files.Try(changed, {.type = "f32"});
        if (!report.ok()) {
          EXPECT_FALSE(report.status().message().empty()) << model << key;
        }
      }
    }
  }
}

TEST(GgufFamilyErrors, KeysThatAreMissing) {
  const FamilyFiles files;
  for (const auto& [model, key] :
       {std::pair{"deepseek_v3", "first_k_dense_replace"},
        {"deepseek_v3", "routed_scaling_factor"},
        {"qwen3_moe", "num_experts_per_tok"}}) {
    SCOPED_TRACE(key);
    ModelFiles published = Open(model, "config.json");
    published.config.erase(key);
    const absl::Status status = files.Try(published, {.type = "f32"}).status();
    EXPECT_FALSE(status.ok());
  }
}

TEST(GgufFamilyErrors, OneExpertHasNoTypeOfItsOwn) {
  const FamilyFiles files;
  const ModelFiles model = Open("mixtral", "config.json");
  const absl::Status status =
      files
          .Try(model,
               {.type = "f32",
                .tensor_types = {"*.1.block_sparse_moe.experts.2.*=q8_0"}})
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  // All of a layer, by either name; the router stays as it is.
  for (const char* pattern :
       {"*layers.1.block_sparse_moe.*=q8_0",
        "*layers.1.block_sparse_moe.experts.?.w?.weight=q8_0"}) {
    SCOPED_TRACE(pattern);
    const auto report =
        files.Try(model, {.type = "f32", .tensor_types = {pattern}});
    ASSERT_TRUE(report.ok()) << report.status();
    int changed = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      const bool is_stack = tensor.gguf.starts_with("blk.1.") &&
                            tensor.gguf.find("_exps.") != std::string::npos;
      EXPECT_EQ(tensor.to == DType::kQ8_0, is_stack) << tensor.gguf;
      changed += is_stack ? 1 : 0;
    }
    EXPECT_EQ(changed, 3);
  }
}

// Calibration knows rows as the model has them.
TEST(GgufFamilyErrors, MethodsOfTensorsInAnotherForm) {
  const FamilyFiles files;
  for (const std::string model :
       {"falcon_h1", "qwen3_moe", "deepseek_v3", "lfm2", "mamba2"}) {
    SCOPED_TRACE(model);
    const bool is_plain = model == "lfm2" || model == "mamba2";
    QuantizeOptions options;
    options.type = "q4_0";
    options.method = QuantizeMethod::kGptq;
    options.calibration_sequences = {{1, 2, 3, 4, 5, 6, 7, 8}};
    const absl::Status status =
        files.Try(Open(model, "config.json"), options).status();
    EXPECT_EQ(status.code(), is_plain ? absl::StatusCode::kOk
                                      : absl::StatusCode::kUnimplemented)
        << status;
  }
}

}  // namespace
}  // namespace inlay
