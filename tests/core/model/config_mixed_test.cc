// What config.json's keys make of families with experts, latent attention or
// recurrent layers, as transformers 5 and the published code have it; found by
// tests/reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/model/decoder_spec.h"
#include "core/model/load_model.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

Json MixedConfig(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"vocab_size", 40},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"moe_intermediate_size", 24},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"max_position_embeddings", 64}};
}

absl::StatusOr<DecoderSpec> MixedSpec(const Json& config) {
  static Device* const device = CreateCpuDevice(1, 0)->release();
  ModelFiles files;
  files.config = config;
  files.random = RandomWeights{};
  return DescribeDecoder(files, *device);
}

absl::Status Refused(Json config, const char* key, Json value) {
  config[key] = std::move(value);
  return MixedSpec(config).status();
}

void ExpectUnimplemented(const absl::Status& status, const char* in_message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(in_message));
}

template <typename Part>
const Part& PartOf(const DecoderSpec& spec, size_t layer, size_t block = 0) {
  return std::get<Part>(spec.layers[layer].blocks[block].part);
}

// Heads of 8, 64 wide together.
Json MambaConfig(const std::string& architecture, int groups) {
  Json config = MixedConfig(architecture);
  for (const char* key : {"num_heads", "mamba_n_heads", "mamba_num_heads",
                          "mamba_d_head", "mamba_head_dim"}) {
    config[key] = 8;
  }
  if (architecture == "Mamba2ForCausalLM") config["head_dim"] = 8;
  config["mamba_d_ssm"] = 64;
  config["mamba_n_groups"] = config["n_groups"] = groups;
  config["hybrid_override_pattern"] = "ME*-";
  return config;
}

// Mamba-Codestral has 8 groups.
TEST(ConfigMixed, GatedNormsAreOfGroups) {
  for (const char* name :
       {"Mamba2ForCausalLM", "GraniteMoeHybridForCausalLM"}) {
    for (const int groups : {1, 4}) {
      const auto spec = MixedSpec(MambaConfig(name, groups));
      ASSERT_TRUE(spec.ok()) << name << ": " << spec.status();
      EXPECT_EQ(PartOf<MambaSpec>(*spec, 0).norm_groups, groups) << name;
    }
  }
}

// transformers takes hidden_act for the convolutions, too.
// Codestral's config.json says that it is, and nobody's code heeds it.
TEST(ConfigMixed, Mamba2sGateIsFirstWhateverItSays) {
  Json config = MambaConfig("Mamba2ForCausalLM", 2);
  config["norm_before_gate"] = true;
  const auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(PartOf<MambaSpec>(*spec, 0).gate_first);
}

TEST(ConfigMixed, ConvolutionsHaveSiluAlone) {
  for (const char* name :
       {"Mamba2ForCausalLM", "GraniteMoeHybridForCausalLM",
        "FalconH1ForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM", "KimiLinearForCausalLM"}) {
    Json config = MambaConfig(name, 1);
    EXPECT_TRUE(MixedSpec(config).ok()) << name;
    config["hidden_act"] = "swish";
    EXPECT_TRUE(MixedSpec(config).ok()) << name;
    ExpectUnimplemented(Refused(config, "hidden_act", "gelu"),
                        "hidden_act is \"gelu\"");
    // Where no layer has one, the MLP's may be any.
    config["layer_types"] = Json(4, "full_attention");
    const bool attends = MixedSpec(config).ok() &&
                         std::string_view(name) != "Mamba2ForCausalLM" &&
                         std::string_view(name) != "FalconH1ForCausalLM";
    EXPECT_EQ(Refused(config, "hidden_act", "gelu").ok(), attends) << name;
  }
  ExpectUnimplemented(Refused(MambaConfig("NemotronHForCausalLM", 1),
                              "mamba_hidden_act", "gelu"),
                      "mamba_hidden_act is \"gelu\"");
}

TEST(ConfigMixed, NullHeadsOfKeysAreAsManyAsHeads) {
  for (const char* name : {"FalconH1ForCausalLM", "MixtralForCausalLM"}) {
    Json config = MambaConfig(name, 1);
    config["num_key_value_heads"] = nullptr;
    const auto spec = MixedSpec(config);
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.status();
    const auto* both =
        std::get_if<AttentionMambaSpec>(&spec->layers[0].blocks[0].part);
    const AttentionSpec& attention =
        both != nullptr ? both->attention : PartOf<AttentionSpec>(*spec, 0);
    EXPECT_EQ(attention.num_kv_heads, 4) << name;
  }
}

TEST(ConfigMixed, FalconsFactorsDoNotGoPastBiases) {
  Json config = MambaConfig("FalconH1ForCausalLM", 1);
  for (const char* key :
       {"attention_bias", "mamba_proj_bias", "projectors_bias", "mlp_bias"}) {
    config[key] = true;
  }
  EXPECT_TRUE(MixedSpec(config).ok());
  config["key_multiplier"] = 0.5;
  config["embedding_multiplier"] = 0.5;
  EXPECT_TRUE(MixedSpec(config).ok());
  for (const char* key : {"attention_in_multiplier", "attention_out_multiplier",
                          "ssm_in_multiplier", "ssm_out_multiplier"}) {
    ExpectUnimplemented(Refused(config, key, 0.5), key);
  }
  EXPECT_TRUE(Refused(config, "mlp_multipliers", {0.5, 1.0}).ok());
  ExpectUnimplemented(Refused(config, "mlp_multipliers", {1.0, 0.5}),
                      "mlp_multipliers");
}

TEST(ConfigMixed, MixersHeadsFollowFromTheirWidth) {
  Json config = MambaConfig("GraniteMoeHybridForCausalLM", 1);
  config.erase("mamba_d_head");
  const auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(PartOf<MambaSpec>(*spec, 0).head_dim, 8);
  // Flags that null switches off.
  EXPECT_TRUE(PartOf<MambaSpec>(*spec, 0).conv_bias);
  config["mamba_conv_bias"] = nullptr;
  EXPECT_FALSE(PartOf<MambaSpec>(*MixedSpec(config), 0).conv_bias);
  config["layers_block_type"] = {"mamba", "attention", "mamba", "attention"};
  EXPECT_TRUE(std::holds_alternative<AttentionSpec>(
      MixedSpec(config)->layers[1].blocks[0].part));
}

TEST(ConfigMixed, NemotronsOtherNames) {
  Json config = MambaConfig("NemotronHForCausalLM", 1);
  config.erase("hybrid_override_pattern");
  config.erase("n_groups");
  config["layer_types"] = {"full_attention", "linear_attention", "moe", "mlp"};
  config["mamba_n_groups"] = 2;
  config["mamba_d_conv"] = 3;
  config["mamba_dt_min"] = 0.25;
  config["mamba_conv_bias"] = false;
  config["mlp_bias"] = true;
  const auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto& mamba = PartOf<MambaSpec>(*spec, 1);
  EXPECT_EQ(mamba.num_groups, 2);
  EXPECT_EQ(mamba.num_taps, 3);
  EXPECT_EQ(mamba.least_step, 0.25f);
  EXPECT_FALSE(mamba.conv_bias);
  // Experts have no biases.
  const auto& moe = PartOf<MoeSpec>(*spec, 2);
  EXPECT_FALSE(moe.experts[0].output.bias);
  EXPECT_TRUE(moe.shared->output.bias);
  EXPECT_TRUE(PartOf<MlpSpec>(*spec, 3).output.bias);
}

TEST(ConfigMixed, Lfm2sOlderNameOfTiesWinsAndItsActivationIsItsOwn) {
  Json config = MixedConfig("Lfm2ForCausalLM");
  config["hidden_act"] = "gelu";
  auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->head, "");
  EXPECT_EQ(PartOf<MlpSpec>(*spec, 0, 1).activation, Activation::kSilu);
  config["tie_word_embeddings"] = true;
  config["tie_embedding"] = false;
  EXPECT_EQ(MixedSpec(config)->head, "lm_head");
  config["tie_word_embeddings"] = false;
  config["tie_embedding"] = true;
  EXPECT_EQ(MixedSpec(config)->head, "");
}

TEST(ConfigMixed, GptOssScalesWhereNothingIsSaid) {
  Json config = MixedConfig("GptOssForCausalLM");
  config["rope_theta"] = 500.0;
  auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec->ropes[0].factor, 32.0);
  EXPECT_EQ(spec->ropes[0].original_max, 4096);
  EXPECT_EQ(spec->ropes[0].theta, 500.0);
  EXPECT_FALSE(spec->ropes[0].truncate);
  config["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(MixedSpec(config)->ropes[0].scaling, RopeScaling::kNone);
  config["swiglu_alpha"] = 1.702;
  EXPECT_TRUE(MixedSpec(config).ok());
  ExpectUnimplemented(Refused(config, "swiglu_alpha", 1.5), "swiglu_alpha");
}

std::vector<int> Windows(const Json& config) {
  std::vector<int> windows;
  const auto spec = MixedSpec(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return windows;
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    windows.push_back(PartOf<AttentionSpec>(*spec, i).window);
  }
  return windows;
}

TEST(ConfigMixed, WindowsOfQwensMixtures) {
  const Json kinds = {"full_attention", "sliding_attention", "full_attention",
                      "full_attention"};
  for (const char* name : {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}) {
    const bool is_third = std::string_view(name) == "Qwen3MoeForCausalLM";
    Json config = MixedConfig(name);
    config["sliding_window"] = 8;
    config["max_window_layers"] = 1;
    EXPECT_EQ(Windows(config), std::vector<int>({0, 0, 0, 0}));
    config["use_sliding_window"] = true;
    EXPECT_EQ(Windows(config), is_third ? std::vector<int>({8, 8, 8, 8})
                                        : std::vector<int>({8, 0, 0, 0}));
    config["max_window_layers"] = 4;
    EXPECT_EQ(Windows(config), is_third ? std::vector<int>({8, 8, 8, 8})
                                        : std::vector<int>({8, 0, 8, 0}));
    config["layer_types"] = kinds;
    EXPECT_EQ(Windows(config), is_third ? std::vector<int>({8, 8, 8, 8})
                                        : std::vector<int>({0, 8, 0, 0}));
  }
}

Json LatentJson(const std::string& architecture) {
  Json config = MixedConfig(architecture);
  config["n_routed_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  config["n_group"] = config["topk_group"] = 1;
  config["qk_rope_head_dim"] = 8;
  config["first_k_dense_replace"] = 0;
  return config;
}

TEST(ConfigMixed, LatentAttentionsScaleIsRaisedByAnyScaling) {
  for (const char* name : {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"}) {
    Json config = LatentJson(name);
    const float plain =
        PartOf<LatentAttentionSpec>(*MixedSpec(config), 0).scale;
    for (const char* type : {"linear", "dynamic", "yarn"}) {
      config["rope_scaling"] = {
          {"type", type}, {"factor", 4.0}, {"mscale_all_dim", 1.0}};
      const auto spec = MixedSpec(config);
      ASSERT_TRUE(spec.ok()) << spec.status();
      const auto raised = static_cast<float>(YarnMagnitude(4.0, 1.0));
      EXPECT_FLOAT_EQ(PartOf<LatentAttentionSpec>(*spec, 0).scale,
                      plain * raised * raised)
          << name << " " << type;
    }
  }
}

TEST(ConfigMixed, DeepseeksFlagsThatNullSwitchesOff) {
  Json config = LatentJson("DeepseekV3ForCausalLM");
  auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(PartOf<MoeSpec>(*spec, 0, 1).routing.normalised);
  EXPECT_EQ(PartOf<LatentAttentionSpec>(*spec, 0).rope_style,
            RopeStyle::kInterleaved);
  config["norm_topk_prob"] = config["rope_interleave"] = nullptr;
  spec = MixedSpec(config);
  EXPECT_FALSE(PartOf<MoeSpec>(*spec, 0, 1).routing.normalised);
  EXPECT_EQ(PartOf<LatentAttentionSpec>(*spec, 0).rope_style, RopeStyle::kHalf);
}

TEST(ConfigMixed, BiasesOfDeepseeksMlpsAreRefused) {
  ExpectUnimplemented(
      Refused(LatentJson("DeepseekV2ForCausalLM"), "mlp_bias", true),
      "mlp_bias is true");
  Json config = MixedConfig("DeepseekV4ForCausalLM");
  config["num_key_value_heads"] = 1;
  config["qk_rope_head_dim"] = 4;
  EXPECT_TRUE(MixedSpec(config).ok());
  ExpectUnimplemented(Refused(config, "mlp_bias", true), "mlp_bias is true");
}

TEST(ConfigMixed, Glm4MoesHeadsFollowFromHiddenSize) {
  Json config = MixedConfig("Glm4MoeForCausalLM");
  config["num_attention_heads"] = 2;
  config.erase("head_dim");
  const auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(PartOf<AttentionSpec>(*spec, 0).head_dim, 16);
}

TEST(ConfigMixed, WeightsOfExpertsThatAreAlwaysNormalised) {
  for (const char* name : {"MixtralForCausalLM", "GptOssForCausalLM",
                           "MiniMaxForCausalLM", "MiniMaxM2ForCausalLM"}) {
    Json config = MixedConfig(name);
    config["norm_topk_prob"] = false;
    const auto spec = MixedSpec(config);
    ASSERT_TRUE(spec.ok()) << name << ": " << spec.status();
    EXPECT_TRUE(PartOf<MoeSpec>(*spec, 0, 1).routing.normalised) << name;
  }
}

TEST(ConfigMixed, WhatMiniMaxM2sCodeKnowsAndNoModelHas) {
  Json config = MixedConfig("MiniMaxM2ForCausalLM");
  config["scoring_func"] = "sigmoid";
  config["qk_norm_type"] = "per_layer";
  config["attn_type_list"] = {1, 1, 1, 1};
  EXPECT_TRUE(MixedSpec(config).ok()) << MixedSpec(config).status();
  ExpectUnimplemented(Refused(config, "scoring_func", "softmax"),
                      "scoring_func");
  ExpectUnimplemented(Refused(config, "qk_norm_type", "per_head"),
                      "qk_norm_type");
  ExpectUnimplemented(Refused(config, "attn_type_list", {1, 0, 1, 1}),
                      "attn_type_list");
}

TEST(ConfigMixed, KimisLayersByTransformersNames) {
  Json config = LatentJson("KimiLinearForCausalLM");
  config["num_hidden_layers"] = 5;
  config["layer_types"] = {"full_attention", "linear_attention",
                           "linear_attention", "full_attention",
                           "linear_attention"};
  config["mlp_layer_types"] = {"sparse", "dense", "dense", "sparse", "sparse"};
  config["linear_num_heads"] = 2;
  config["linear_head_dim"] = 16;
  config["linear_conv_kernel_dim"] = 3;
  // What is inside wins over what is beside, but for the layers.
  config["linear_attn_config"] = {{"full_attn_layers", {2}}, {"num_heads", 4}};
  auto spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (const size_t i : {0, 3}) PartOf<LatentAttentionSpec>(*spec, i);
  const auto& delta = PartOf<DeltaSpec>(*spec, 1);
  EXPECT_EQ(delta.num_heads, 4);
  EXPECT_EQ(delta.key_dim, 16);
  EXPECT_EQ(delta.num_taps, 3);
  for (const size_t i : {0, 3, 4}) PartOf<MoeSpec>(*spec, i, 1);
  for (const size_t i : {1, 2}) PartOf<MlpSpec>(*spec, i, 1);
  // Nothing said: every fourth but the first.
  config.erase("layer_types");
  config.erase("linear_attn_config");
  spec = MixedSpec(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(PartOf<DeltaSpec>(*spec, 0).num_heads, 2);
  PartOf<DeltaSpec>(*spec, 3);
  PartOf<LatentAttentionSpec>(*spec, 4);
  config["linear_attn_config"] = {1};
  EXPECT_EQ(MixedSpec(config).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay
