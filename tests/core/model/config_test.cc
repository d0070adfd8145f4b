// config.json as an attacker or a typo writes it: every bad value is a typed
// error that names the key, before anything is allocated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/model/arch.h"
#include "core/model/hf_config.h"
#include "core/model/load_model.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

Json SmallConfig(const std::string& architecture) {
  Json config = {{"architectures", {architecture}},
                 {"vocab_size", 40},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"max_position_embeddings", 64}};
  // Mamba's heads, as each of its families spells them: 64 wide together.
  for (const char* key : {"num_heads", "mamba_n_heads", "mamba_num_heads",
                          "mamba_d_head", "mamba_head_dim"}) {
    config[key] = 8;
  }
  config["mamba_d_ssm"] = 64;
  config["mamba_n_groups"] = config["n_groups"] = 1;
  config["hybrid_override_pattern"] = "M*";
  config["linear_attn_config"] = {{"full_attn_layers", {2}}};
  config["num_kv_shared_layers"] = 0;     // Gemma 3n's default is 15
  config["classifier_pooling"] = "mean";  // EuroBERT's is not there
  if (architecture == "LinearAttentionForCausalLM") {
    config["feature_map"] = "elu";  // what it defaults to is not there
  }
  if (architecture == "GPTJForCausalLM" ||
      architecture == "CodeGenForCausalLM") {
    config["rotary_dim"] = 4;
  }
  if (architecture == "DeepseekV4ForCausalLM") {
    config["num_key_value_heads"] = 1;
    config["qk_rope_head_dim"] = 4;
  }
  if (architecture == "GPT2LMHeadModel") {
    config = {{"architectures", {architecture}},
              {"vocab_size", 40},
              {"n_embd", 32},
              {"n_layer", 2},
              {"n_head", 4},
              {"n_positions", 64}};
  }
  if (architecture == "CohereCompassForCausalLM") {
    config["rope_parameters"] = {{"full_attention", nullptr}};
  }
  if (architecture == "DoryForCausalLM") {
    config["n_input_layers"] = config["n_output_layers"] = 0;
    config["n_recurrent_loops"] = 1;
  }
  if (architecture == "Zamba2ForCausalLM") {
    config["layers_block_type"] = {"mamba", "hybrid"};
  }
  if (architecture == "MiMoV2FlashForCausalLM") config["v_head_dim"] = 4;
  if (architecture == "LongcatFlashForCausalLM") config["num_layers"] = 2;
  if (architecture.starts_with("Bailing")) config["layer_group_size"] = 2;
  if (architecture.starts_with("Electra") ||
      architecture.starts_with("Albert")) {
    config["embedding_size"] = config["hidden_size"];
  }
  if (architecture.starts_with("Deberta")) {
    config["relative_attention"] = true;
    config["pos_att_type"] = "c2p|p2c";
  }
  if (architecture.starts_with("RemBert")) config["input_embedding_size"] = 16;
  if (architecture.starts_with("Baichuan") ||
      architecture.starts_with("BaiChuan")) {
    config["num_key_value_heads"] = config["num_attention_heads"];
  }
  if (architecture.starts_with("OpenELM")) {
    config["num_query_heads"] = {4, 2};
    config["num_kv_heads"] = {2, 1};
    config["ffn_multipliers"] = {1.0, 1.5};
  }
  if (architecture == "RWKV7ForCausalLM") {
    config["num_heads"] = 2;
    config["head_dim"] = 16;
  }
  if (architecture.starts_with("JinaBert")) {
    config["position_embedding_type"] = "alibi";
    config["feed_forward_type"] = "geglu";
  }
  return config;
}

absl::StatusOr<std::unique_ptr<Model>> Plan(const Json& config) {
  static Device* const device = CreateCpuDevice(1, 0)->release();
  ModelFiles files;
  files.config = config;
  files.random = RandomWeights{};
  return PlanModel(files, *device, {});
}

absl::Status Bad(const std::string& architecture, const std::string& key,
                 const Json& value) {
  Json config = SmallConfig(architecture);
  config[key] = value;
  return Plan(config).status();
}

TEST(Config, EveryArchitecturePlansFromASmallConfig) {
  for (const ArchRow& row : Architectures()) {
    const auto model = Plan(SmallConfig(std::string(row.architecture)));
    ASSERT_TRUE(model.ok()) << row.architecture << ": " << model.status();
    EXPECT_EQ((*model)->info().architecture, row.architecture);
    EXPECT_EQ((*model)->info().num_layers, 2);
    EXPECT_GT((*model)->WorkspaceBytes(1, 1), 0u);
  }
}

TEST(Config, ModelTypeServesWhereArchitecturesIsMissing) {
  for (const ArchRow& row : Architectures()) {
    Json config = SmallConfig(std::string(row.architecture));
    config.erase("architectures");
    EXPECT_EQ(Plan(config).status().code(), absl::StatusCode::kInvalidArgument);
    config["model_type"] = row.model_type;
    const auto model = Plan(config);
    EXPECT_TRUE(model.ok()) << row.model_type << ": " << model.status();
  }
}

TEST(Config, UnknownArchitectureListsTheSupported) {
  const auto status = Bad("LlamaForCausalLM", "architectures", {"NoSuchModel"});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("NoSuchModel"));
  for (const ArchRow& row : Architectures()) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(row.architecture)));
  }
}

TEST(Config, BadNumbersNameTheirKey) {
  const Json wrong[] = {
      0, -1, 1e30, 2.5, "8", Json::array(), true, int64_t{1} << 40};
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings"}) {
    for (const Json& value : wrong) {
      const auto status = Bad("LlamaForCausalLM", key, value);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << key << " " << value;
      EXPECT_THAT(std::string(status.message()), HasSubstr(key));
    }
  }
  for (const char* key : {"vocab_size", "n_embd", "n_layer", "n_head",
                          "n_positions", "n_inner"}) {
    for (const Json& value : wrong) {
      const auto status = Bad("GPT2LMHeadModel", key, value);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << key << " " << value;
      EXPECT_THAT(std::string(status.message()), HasSubstr(key));
    }
  }
}

struct BadValue {
  const char* architecture;
  const char* key;
  Json value;
  absl::StatusCode code;
  const char* in_message;
};

TEST(Config, BadValues) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kUnimplemented = absl::StatusCode::kUnimplemented;
  const Json huge_list(5000, 1.0);
  const BadValue cases[] = {
      {"LlamaForCausalLM", "num_key_value_heads", 3, kInvalid, "multiple"},
      {"LlamaForCausalLM", "head_dim", 7, kInvalid, "even"},
      {"LlamaForCausalLM", "head_dim", 5000, kInvalid, "head_dim"},
      {"LlamaForCausalLM", "rms_norm_eps", "x", kInvalid, "rms_norm_eps"},
      {"LlamaForCausalLM", "rms_norm_eps", -1, kInvalid, "rms_norm_eps"},
      {"LlamaForCausalLM", "hidden_act", "mish", kUnimplemented, "mish"},
      {"LlamaForCausalLM", "attention_bias", 1, kInvalid, "attention_bias"},
      {"LlamaForCausalLM", "rope_theta", 0, kInvalid, "rope_theta"},
      {"LlamaForCausalLM", "rope_theta", 1, kInvalid, "rope_theta"},
      {"LlamaForCausalLM", "partial_rotary_factor", 0.1, kInvalid,
       "partial_rotary_factor"},
      {"LlamaForCausalLM", "rope_scaling", 3, kInvalid, "rope_scaling"},
      {"LlamaForCausalLM",
       "rope_scaling",
       {{"type", "spiral"}},
       kUnimplemented,
       "spiral"},
      {"LlamaForCausalLM",
       "rope_scaling",
       {{"type", "linear"}},
       kInvalid,
       "factor"},
      {"LlamaForCausalLM",
       "rope_scaling",
       {{"type", "linear"}, {"factor", 0.5}},
       kInvalid,
       "factor"},
      {"LlamaForCausalLM",
       "rope_parameters",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 4},
        {"high_freq_factor", 4}},
       kInvalid,
       "high_freq_factor"},
      {"LlamaForCausalLM",
       "rope_scaling",
       {{"type", "longrope"}, {"factor", 2}, {"long_factor", {1, 1, 1, 1}}},
       kInvalid,
       "short_factor"},
      {"LlamaForCausalLM",
       "rope_scaling",
       {{"type", "longrope"},
        {"factor", 2},
        {"short_factor", {1, 1, 1, 1}},
        {"long_factor", {1, 1, 0, 1}}},
       kInvalid,
       "long_factor"},
      {"LlamaForCausalLM",
       "rope_scaling",
       {{"type", "longrope"}, {"factor", 2}, {"short_factor", huge_list}},
       kInvalid,
       "short_factor"},
      {"MistralForCausalLM", "sliding_window", 0, kInvalid, "sliding_window"},
      {"Qwen2ForCausalLM",
       "layer_types",
       {"full_attention"},
       kInvalid,
       "layer_types"},
      {"Qwen2ForCausalLM",
       "layer_types",
       {"full_attention", "chunked_attention"},
       kUnimplemented,
       "chunked_attention"},
      {"Gemma2ForCausalLM", "query_pre_attn_scalar", 0, kInvalid,
       "query_pre_attn_scalar"},
      {"Gemma2ForCausalLM", "final_logit_softcapping", -3, kInvalid,
       "final_logit_softcapping"},
      {"Gemma3ForCausalLM", "sliding_window_pattern", 0, kInvalid,
       "sliding_window_pattern"},
      {"Gemma2ForCausalLM", "use_bidirectional_attention", true, kUnimplemented,
       "use_bidirectional_attention"},
      {"GPT2LMHeadModel", "n_head", 5, kInvalid, "n_head"},
      {"GPT2LMHeadModel", "add_cross_attention", true, kUnimplemented,
       "add_cross_attention"},
      {"SmolLM3ForCausalLM", "no_rope_layers", Json::array({1, 2}), kInvalid,
       "no_rope_layers"},
      {"SmolLM3ForCausalLM", "no_rope_layers", Json::array({1}), kInvalid,
       "no_rope_layers"},
      {"Exaone4ForCausalLM", "sliding_window_pattern", "LLX", kInvalid,
       "sliding_window_pattern"},
      {"GraniteForCausalLM", "logits_scaling", 0, kInvalid, "logits_scaling"},
      {"GPTNeoXForCausalLM", "rotary_pct", 2, kInvalid, "rotary_pct"},
      {"DeepseekV2ForCausalLM", "topk_method", "noaux_tc", kUnimplemented,
       "topk_method"},
      {"DeepseekV2ForCausalLM", "scoring_func", "sigmoid", kUnimplemented,
       "scoring_func"},
      {"DeepseekV3ForCausalLM", "topk_method", "greedy", kUnimplemented,
       "topk_method"},
      {"KimiLinearForCausalLM", "mla_use_nope", false, kUnimplemented,
       "mla_use_nope"},
      {"KimiLinearForCausalLM",
       "linear_attn_config",
       {{"full_attn_layers", {0}}},
       kInvalid,
       "full_attn_layers"},
      {"KimiLinearForCausalLM", "moe_router_activation_func", "softmax",
       kUnimplemented, "scoring_func"},
      {"DeepseekV3ForCausalLM", "n_group", 0, kInvalid, "n_group"},
      {"DeepseekV3ForCausalLM", "q_lora_rank", 0, kInvalid, "q_lora_rank"},
      {"DeepseekV3ForCausalLM", "kv_lora_rank", 0, kInvalid, "kv_lora_rank"},
      {"DeepseekV3ForCausalLM", "kv_lora_rank", 513,
       absl::StatusCode::kNotFound, "head_dim must be 1 to 576"},
      {"DeepseekV3ForCausalLM", "qk_rope_head_dim", 7, kInvalid, "even"},
      {"DeepseekV3ForCausalLM", "partial_rotary_factor", 0.5, kUnimplemented,
       "partial_rotary_factor"},
      {"DeepseekV3ForCausalLM", "num_hidden_layers", 4096, kInvalid,
       "experts in each of 4096 layers"},
      {"DeepseekV3ForCausalLM", "num_attention_heads", 4096, kInvalid,
       "qk_nope_head_dim"},
      {"OPTForCausalLM", "word_embed_proj_dim", 64, kUnimplemented,
       "word_embed_proj_dim"},
      {"MiniMaxM2ForCausalLM", "rotary_dim", 5000, kInvalid, "rotary_dim"},
      {"Llama4ForCausalLM", "num_experts_per_tok", 2, kUnimplemented,
       "num_experts_per_tok"},
      {"Llama4ForCausalLM", "moe_layers", Json::array({2}), kInvalid,
       "moe_layers"},
      {"Llama4ForCausalLM", "moe_layers", 1, kInvalid, "moe_layers"},
      {"Llama4ForCausalLM", "floor_scale", 0, kInvalid, "floor_scale"},
      {"LinearAttentionForCausalLM", "feature_map", "hedgehog", kUnimplemented,
       "feature_map is \"hedgehog\", allowed: elu, relu, identity"},
      {"LinearAttentionForCausalLM", "feature_map", nullptr, kUnimplemented,
       "elementwise_product"},
      {"LinearAttentionForCausalLM", "norm_q", true, kUnimplemented, "norm_q"},
      {"LinearAttentionForCausalLM", "norm_k", true, kUnimplemented, "norm_k"},
      {"LinearAttentionForCausalLM", "num_kv_heads", 2, kUnimplemented,
       "num_kv_heads"},
      {"LinearAttentionForCausalLM", "hidden_act", "gelu", kUnimplemented,
       "hidden_act"},
      {"LinearAttentionForCausalLM", "expand_v", 2.0, kUnimplemented,
       "expand_v"},
      {"LinearAttentionForCausalLM", "num_heads", 6, kInvalid, "num_heads"},
      {"LinearAttentionForCausalLM",
       "attn",
       {{"layers", {1}}},
       kUnimplemented,
       "attn is there"},
      {"LinearAttentionForCausalLM", "attnres_block_size", 4, kUnimplemented,
       "attnres_block_size"},
  };
  for (const BadValue& bad : cases) {
    const auto status = Bad(bad.architecture, bad.key, bad.value);
    EXPECT_EQ(status.code(), bad.code) << bad.key << " " << bad.value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.in_message));
  }
}

TEST(Config, HeadDimFollowsFromHiddenSize) {
  Json config = SmallConfig("LlamaForCausalLM");
  config.erase("head_dim");
  EXPECT_EQ((*Plan(config))->info().kv_layers[0].head_dim, 8);
  config["head_dim"] = nullptr;
  EXPECT_EQ((*Plan(config))->info().kv_layers[0].head_dim, 8);
  config["hidden_size"] = 34;
  EXPECT_EQ(Plan(config).status().code(), absl::StatusCode::kInvalidArgument);
  // Families with a fixed head_dim do not derive it.
  config = SmallConfig("GemmaForCausalLM");
  config.erase("head_dim");
  EXPECT_EQ((*Plan(config))->info().kv_layers[0].head_dim, 256);
  config = SmallConfig("LlamaForCausalLM");
  config.erase("num_key_value_heads");
  EXPECT_EQ((*Plan(config))->info().kv_layers[0].num_kv_heads, 4);
}

TEST(Config, ScalingsThatReachFurtherRaiseMaxPositions) {
  Json config = SmallConfig("Qwen2ForCausalLM");
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  EXPECT_EQ((*Plan(config))->info().max_positions, 256);
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  EXPECT_EQ((*Plan(config))->info().max_positions, 128);
  EXPECT_EQ((*Plan(config))->info().rope_threshold, 64);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ((*Plan(config))->info().max_positions, 64);
  EXPECT_EQ((*Plan(config))->info().rope_threshold, 0);
}

TEST(Config, NestedRopeParametersAreReadByLayerType) {
  const Json json = {
      {"rope_parameters",
       {{"full_attention",
         {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5000.0}}},
        {"sliding_attention", {{"rope_theta", 77.0}}}}}};
  DecoderConfig decoder;
  decoder.head_dim = 8;
  decoder.max_positions = 64;
  const auto full = ReadRope(json, decoder, {}, "full_attention");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->scaling, RopeScaling::kLinear);
  EXPECT_EQ(full->theta, 5000.0);
  const auto sliding = ReadRope(json, decoder, {}, "sliding_attention");
  ASSERT_TRUE(sliding.ok()) << sliding.status();
  EXPECT_EQ(*sliding, (RopeSpec{.rotary_dim = 8, .theta = 77.0}));
}

TEST(Config, TheModelsOwnOriginalLengthWins) {
  const Json json = {
      {"original_max_position_embeddings", 16},
      {"rope_scaling",
       {{"type", "yarn"}, {"original_max_position_embeddings", 32}}}};
  DecoderConfig decoder;
  decoder.head_dim = 8;
  decoder.max_positions = 64;
  const auto rope = ReadRope(json, decoder, {});
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->original_max, 16);
  EXPECT_EQ(rope->factor, 4.0);  // the ratio, where no factor is given
}

// The first files of Phi-3 say "su" or "yarn" for LongRoPE.
TEST(Config, Phi3HasOldNamesOfLongRope) {
  Json config = SmallConfig("Phi3ForCausalLM");
  config["original_max_position_embeddings"] = 16;
  for (const char* name : {"longrope", "su", "yarn"}) {
    config["rope_scaling"] = {{"type", name},
                              {"short_factor", {1.0, 1.5, 2.0, 2.5}},
                              {"long_factor", {2.0, 3.0, 4.0, 5.0}}};
    const auto model = Plan(config);
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    EXPECT_EQ((*model)->info().rope_threshold, 16) << name;
  }
}

TEST(Config, HugeButLegalSizesPlanWithoutAllocating) {
  Json config = SmallConfig("LlamaForCausalLM");
  config["vocab_size"] = int64_t{1} << 24;
  config["hidden_size"] = int64_t{1} << 20;
  config["intermediate_size"] = int64_t{1} << 20;
  const auto model = Plan(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_GT((*model)->info().weight_bytes, uint64_t{1} << 44);
  ModelFiles files;
  files.config = config;
  files.random = RandomWeights{};
  const auto device = *CreateCpuDevice(1, 0);
  EXPECT_EQ(LoadModel(files, *device, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Config, NotAnObject) {
  EXPECT_EQ(Plan(Json::array()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Plan(Json()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay
