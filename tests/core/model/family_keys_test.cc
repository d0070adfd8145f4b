// Keys of single families' config.json: what is refused, by name, and what null
// and absence mean where they differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>

#include "core/model/load_model.h"
#include "tests/core/model/golden_models.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

struct RefusedKey {
  const char* model;
  const char* key;  // that the message names
  const char* changes;
  absl::StatusCode code = absl::StatusCode::kUnimplemented;
};
constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr RefusedKey kRefused[] = {
    {"olmoe", "clip_qkv", R"({"clip_qkv": 0.0})", kBad},
    {"ernie4_5_moe", "use_bias", R"({"use_bias": true})"},
    {"hunyuan_v1_dense", "use_cla", R"({"use_cla": true})"},
    {"hunyuan_v1_dense", "alpha", R"({"rope_scaling": {"type": "dynamic",
        "alpha": -1}})",
     kBad},
    {"hunyuan_v1_dense", "head_dim", R"({"head_dim": 2})", kBad},
    {"hunyuan_v1_moe", "moe_topk", R"({"moe_topk": [5]})", kBad},
    {"hunyuan_v1_moe", "moe_topk", R"({"moe_topk": []})", kBad},
    {"hunyuan_v1_moe", "num_experts", R"({"num_experts": ["a"]})", kBad},
    {"hunyuan_v1_moe", "moe_layer_num_skipped",
     R"({"moe_layer_num_skipped": 1})"},
    {"granite_swa", "layer_types", R"({"layer_types": ["mamba",
        "full_attention"]})"},
    {"granite_swa", "layer_rope_theta", R"({"layer_rope_theta": [0]})", kBad},
    {"granite_swa", "layer_rope_theta", R"({"layer_rope_theta": [0, 1]})",
     kBad},
    {"granite_swa", "layer_rope_theta", R"({"layer_rope_theta": [0, null]})",
     kBad},
    {"granitemoe_swa", "layer_rope_theta", R"({"layer_rope_theta": 10000.0})",
     kBad},
    {"gpt_neo", "attention_types", R"({"attention_layers": null,
        "attention_types": "global"})",
     kBad},
    {"gpt_neo", "attention_types",
     R"({"attention_layers": null,
        "attention_types": [[["global", "other"], 1]]})",
     kBad},
    {"gpt_neo", "attention_types", R"({"attention_layers": null,
        "attention_types": [[["global"], 3]]})",
     kBad},
    {"gpt_neo", "attention_types", R"({"attention_layers": null,
        "attention_types": [[["local"], 1]]})",
     kBad},
    {"gpt_neo", "attention_layers", R"({"attention_layers": ["local"]})", kBad},
    {"dbrx", "moe_normalize_expert_weights",
     R"({"ffn_config": {"moe_normalize_expert_weights": 2.0}})"},
    {"dbrx", "kv_n_heads", R"({"attn_config": {"kv_n_heads": "a"}})", kBad},
    {"dbrx", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"apertus", "mlp_bias", R"({"mlp_bias": true})"},
    {"apertus", "post_norm", R"({"post_norm": true})"},
    {"apertus", "qk_norm", R"({"qk_norm": false})"},
    {"apertus", "hidden_act", R"({"hidden_act": "xielu2"})"},
    {"apertus", "rope_scaling", R"({"rope_scaling": null})"},
    {"apertus", "xielu.eps", R"({"xielu": {"alpha_p": [1, 1],
        "alpha_n": [1, 1], "beta": [1, 1], "eps": [-1e-6]}})",
     kBad},
    {"phimoe", "num_experts_per_tok", R"({"num_experts_per_tok": 1})"},
    {"phimoe", "router_jitter_noise", R"({"router_jitter_noise": -0.1})", kBad},
    {"phimoe", "lm_head_bias", R"({"tie_word_embeddings": true})"},
    {"phimoe", "rope type", R"({"rope_scaling": {"type": "linear",
        "factor": 2.0, "short_mscale": 1.0, "long_mscale": 1.0}})"},
    {"phimoe", "long_mscale", R"({"rope_scaling": {"type": "longrope",
        "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "long_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "short_mscale": 1.2, "long_mscale": 1.3}})"},
    {"phimoe", "long_mscale", R"({"rope_scaling": {"type": "longrope",
        "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "long_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "short_mscale": 1.2, "long_mscale": "a"}})",
     kBad},
    {"cwm", "attention_bias", R"({"attention_bias": true})"},
    {"cwm", "rope_scaling", R"({"rope_scaling": null})"},
    {"cwm", "layer_types", R"({"layer_types": ["full_attention"]})", kBad},
    {"internlm3", "qkv_bias", R"({"qkv_bias": false})"},
    {"nanochat", "final_logit_softcapping",
     R"({"final_logit_softcapping": 0.0})", kBad},
    {"solar_open", "use_qk_norm", R"({"use_qk_norm": true})"},
    {"youtu", "mlp_bias", R"({"mlp_bias": true})"},
    {"sarvam_moe", "score_function", R"({"score_function": "softmax"})"},
    {"sarvam_moe", "moe_router_enable_expert_bias",
     R"({"moe_router_enable_expert_bias": false})"},
    {"sarvam_moe", "norm_head", R"({"norm_head": true})"},
    {"sarvam_moe", "use_bias", R"({"use_bias": true})"},
    {"sarvam_moe", "use_rmsnorm", R"({"use_rmsnorm": false})"},
    {"sarvam_moe", "moe_shared_expert_intermediate_size",
     R"({"moe_shared_expert_intermediate_size": 32})"},
    {"sarvam_moe", "shared_experts", R"({"num_shared_experts": 100})", kBad},
    {"sarvam_mla", "score_function", R"({"score_function": "softmax"})"},
    {"axk1", "mlp_layer_types", R"({"mlp_layer_types": ["other"]})"},
    {"axk1", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"iquestcoder", "use_sliding_window", R"({"use_sliding_window": true})"},
    {"iquestcoder", "clip_qkv", R"({"clip_qkv": 8.0})"},
    {"afmoe", "route_norm", R"({"route_norm": false})"},
    {"afmoe", "score_func", R"({"score_func": "softmax"})"},
    {"afmoe", "num_expert_groups", R"({"num_expert_groups": 2})"},
    {"hy_v3", "mlp_bias", R"({"mlp_bias": true})"},
    {"hy_v3", "num_shared_experts", R"({"num_shared_experts": 0})", kBad},
    {"mellum", "mlp_layer_types", R"({"mlp_layer_types": ["dense"]})", kBad},
    {"mellum", "layer_types", R"({"layer_types": ["sliding_attention",
        "chunked_attention"]})"},
    {"cohere2_moe", "expert_selection_fn",
     R"({"expert_selection_fn": "argmax"})"},
    {"cohere2_moe", "shared_expert_combination_strategy",
     R"({"shared_expert_combination_strategy": "max"})"},
    {"cohere2_moe", "first_k_dense_replace", R"({"first_k_dense_replace": 3})",
     kBad},
    {"cohere2_moe", "prefix_dense_intermediate_size",
     R"({"prefix_dense_intermediate_size": 0})", kBad},
    {"cohere2_moe", "num_experts", R"({"num_experts": 100000000})", kBad},
    {"cohere2_moe", "rope_scaling",
     R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})"},
    {"mimo_v2_flash", "v_head_dim", R"({"v_head_dim": 33})"},
    {"mimo_v2_flash", "v_head_dim", R"({"v_head_dim": 0})", kBad},
    {"mimo_v2_flash", "one part in 4",
     R"({"v_head_dim": 7, "swa_v_head_dim": 7})"},
    {"mimo_v2_flash", "swa_head_dim", R"({"swa_head_dim": 16})"},
    {"mimo_v2_flash", "swa_v_head_dim", R"({"swa_v_head_dim": 32})"},
    {"mimo_v2_flash", "swa_num_attention_heads",
     R"({"swa_num_attention_heads": 4})"},
    {"mimo_v2_flash", "multiple", R"({"swa_num_key_value_heads": 3})", kBad},
    {"mimo_v2_flash", "n_shared_experts", R"({"n_shared_experts": 1})"},
    {"mimo_v2_flash", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"mimo_v2_flash", "hybrid_layer_pattern",
     R"({"hybrid_layer_pattern": [0, 2]})", kBad},
    {"mimo_v2_flash", "moe_layer_freq", R"({"moe_layer_freq": 1})", kBad},
    {"bitnet", "mlp_bias", R"({"mlp_bias": true})"},
    {"bitnet", "hidden_act", R"({"hidden_act": "selu"})"},
    {"laguna", "gating", R"({"gating": false})"},
    {"laguna", "gating_types",
     R"({"gating_types": ["per_head", "per_element"]})"},
    {"laguna", "num_attention_heads_per_layer",
     R"({"num_attention_heads_per_layer": [2]})", kBad},
    {"laguna", "num_attention_heads_per_layer",
     R"({"num_attention_heads_per_layer": [2, 1e9]})", kBad},
    {"laguna", "multiple", R"({"num_key_value_heads": 2,
        "num_attention_heads_per_layer": [2, 3]})",
     kBad},
    {"laguna", "512 heads of dimension 4096", R"({"head_dim": 4096,
        "num_attention_heads_per_layer": [2, 512]})",
     kBad},
    {"laguna", "sliding_window", R"({"sliding_window": 0})", kBad},
    {"laguna", "sliding_window", R"({"sliding_window": null})", kBad},
    {"laguna", "moe_router_use_sigmoid",
     R"({"moe_router_use_sigmoid": false})"},
    {"laguna", "moe_router_score_func",
     R"({"moe_router_score_func": "softmax"})"},
    {"laguna", "moe_apply_router_weight_on_input",
     R"({"moe_apply_router_weight_on_input": true})"},
    {"laguna", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"laguna", "moe_router_logit_softcapping",
     R"({"moe_router_logit_softcapping": -1.0})", kBad},
    {"laguna", "mlp_only_layers",
     R"({"mlp_layer_types": null, "mlp_only_layers": [1]})"},
    {"laguna", "decoder_sparse_step",
     R"({"mlp_layer_types": null, "decoder_sparse_step": 2})"},
    {"laguna", "swa_attention_sink_enabled",
     R"({"swa_attention_sink_enabled": true})"},
    {"laguna", "rope_parameters",
     R"({"rope_parameters": {"rope_type": "default"}})"},
    {"laguna", "sliding_attention",
     R"({"rope_parameters": {"full_attention": {}}})"},
    {"olmo_hybrid", "hidden_act", R"({"hidden_act": "relu"})"},
    {"olmo_hybrid", "linear_num_key_heads", R"({"linear_num_key_heads": 3})",
     kBad},
    {"olmo_hybrid", "linear_key_head_dim",
     R"({"linear_key_head_dim": 1048576})", kBad},
    {"olmo_hybrid", "linear_allow_neg_eigval",
     R"({"linear_allow_neg_eigval": 2})", kBad},
    {"bamba", "attn_rotary_emb", R"({"attn_rotary_emb": 16})"},
    {"bamba", "attn_layer_indices", R"({"attn_layer_indices": [2]})", kBad},
    {"bamba", "hidden_act", R"({"hidden_act": "relu"})"},
    {"mamba", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"mamba", "state_size", R"({"state_size": 129})", kBad},
    {"mamba", "conv_kernel", R"({"conv_kernel": 1})", kBad},
    {"mamba", "time_step_rank", R"({"time_step_rank": 0})", kBad},
    {"mamba", "time_step_rank", R"({"time_step_rank": "high"})", kBad},
    {"mamba", "intermediate_size", R"({"intermediate_size": -64})", kBad},
    {"mamba", "expand", R"({"intermediate_size": null, "expand": 64,
        "hidden_size": 1000000})",
     kBad},
    {"falcon_mamba", "mixer_rms_eps", R"({"mixer_rms_eps": "small"})", kBad},
    {"jamba", "attn_layer_offset", R"({"attn_layer_offset": 2})", kBad},
    {"jamba", "expert_layer_period", R"({"expert_layer_period": 0})", kBad},
    {"jamba", "mamba_expand", R"({"mamba_expand": 1e9})", kBad},
    {"jamba", "num_experts_per_tok", R"({"num_experts_per_tok": 5})", kBad},
    {"jamba", "num_experts", R"({"num_experts": 1000000000})", kBad},
    {"jamba", "hidden_act", R"({"hidden_act": "relu"})"},
    {"gpt_neo", "window_size", R"({"window_size": 0})", kBad},
    {"ministral", "layer_types", R"({"layer_types": ["chunked_attention",
        "full_attention"]})"},
    {"ernie4_5_moe", "moe_norm_min", R"({"moe_norm_min": 0.5})"},
    {"ernie4_5_moe", "moe_k", R"({"moe_k": 5})", kBad},
    {"opt", "layer_norm_elementwise_affine",
     R"({"layer_norm_elementwise_affine": false})"},
    {"opt", "word_embed_proj_dim", R"({"word_embed_proj_dim": 65})"},
    {"falcon", "num_ln_in_parallel_attn", R"({"num_ln_in_parallel_attn": 2})"},
    {"falcon_40b", "parallel_attn", R"({"parallel_attn": false})"},
    {"falcon_rw", "num_kv_heads", R"({"num_kv_heads": 1})", kBad},
    {"gptj", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"gptj", "rotary_dim", R"({"rotary_dim": null})", kBad},
    {"gptj", "rotary_dim", R"({"rotary_dim": 18})", kBad},
    {"gpt_bigcode", "add_cross_attention", R"({"add_cross_attention": true})"},
    {"bloom", "apply_residual_connection_post_layernorm",
     R"({"apply_residual_connection_post_layernorm": true})"},
    {"mpt", "no_bias", R"({"no_bias": false})"},
    {"mpt", "logit_scale", R"({"logit_scale": 0.5})"},
    {"mpt", "expansion_ratio", R"({"expansion_ratio": 2})"},
    {"mpt", "attn_type",
     R"({"attn_config": {"attn_type": "multiquery_attention"}})"},
    {"mpt", "qk_ln", R"({"attn_config": {"qk_ln": true}})"},
    {"mpt", "prefix_lm", R"({"attn_config": {"prefix_lm": true}})"},
    {"mpt", "alibi", R"({"attn_config": {"alibi": false}})"},
    {"mpt", "alibi_bias_max", R"({"attn_config": {"alibi_bias_max": 16}})"},
    {"phi", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"olmo", "clip_qkv", R"({"clip_qkv": -8.0})", kBad},
    {"dots1", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"glm4_moe_lite", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"glm4_moe_lite", "mlp_layer_types", R"({"mlp_layer_types": ["dense"]})",
     kBad},
    {"exaone_moe", "topk_method", R"({"topk_method": "greedy"})"},
    {"minicpm3", "num_attention_heads", R"({"num_attention_heads": 3,
        "num_key_value_heads": 3})",
     kBad},
    {"minicpm3", "dim_model_base", R"({"dim_model_base": 0})", kBad},
    {"ministral3", "original_max_position_embeddings",
     R"({"rope_scaling": {"type": "linear", "factor": 2.0,
        "llama_4_scaling_beta": 0.1}})",
     kBad},
    {"mistral4", "partial_rotary_factor", R"({"qk_nope_head_dim": 32})"},
    {"mistral4", "norm_topk_prob", R"({"norm_topk_prob": null})", kBad},
    {"mistral4", "rope_interleave", R"({"rope_interleave": null})", kBad},
    {"lfm2_moe", "layer_types", R"({"layer_types": ["conv"]})", kBad},
    {"lfm3", "layer_types", R"({"layer_types": ["conv", "conv", "mamba"]})",
     kBad},
    {"lfm3", "layer_types", R"({"layer_types": "conv"})", kBad},
    {"lfm3", "conv_L_cache", R"({"conv_L_cache": 1})", kBad},
    {"lfm3", "partial_rotary_factor", R"({"rope_parameters": {
        "full_attention": {}, "sliding_attention": {
            "rope_type": "default", "partial_rotary_factor": 0.5}}})"},
    {"gemma3_text", "attn_logit_softcapping",
     R"({"attn_logit_softcapping": 30.0})"},
    {"deepseek_v2", "norm_topk_prob", R"({"norm_topk_prob": true})"},
    {"deepseek_v2", "rope_interleave", R"({"rope_interleave": false})"},
    {"deepseek_v32", "rope_interleave", R"({"rope_interleave": false})"},
    {"deepseek_v32", "indexer_rope_interleave",
     R"({"indexer_rope_interleave": true})"},
    {"glm_moe_dsa", "rope_interleave", R"({"rope_interleave": false})"},
    {"glm_moe_dsa", "indexer_rope_interleave",
     R"({"indexer_rope_interleave": false})"},
    {"minimax_m2", "use_qk_norm", R"({"use_qk_norm": false})"},
    {"minimax_m2", "use_routing_bias", R"({"use_routing_bias": false})"},
    {"llama2", "partial_rotary_factor", R"({"partial_rotary_factor": 0.5})"},
    {"mixtral", "partial_rotary_factor",
     R"({"rope_parameters": {"partial_rotary_factor": 0.5}})"},
    {"deepseek_v3", "partial_rotary_factor",
     R"({"partial_rotary_factor": 0.5})"},
};

TEST(FamilyKeysTest, AreRefusedByName) {
  const auto device = Cpu(1);
  for (const RefusedKey& row : kRefused) {
    SCOPED_TRACE(::testing::Message() << row.model << ' ' << row.changes);
    ModelFiles files = Open(row.model, "config.json");
    files.config.update(*ParseJson(row.changes, "changes"));
    const absl::Status status = PlanModel(files, *device, {}).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.key));
  }
}

// Of any weights.
DecoderSpec Described(const char* model, const char* changes,
                      const char* erased = "") {
  const auto device = Cpu(1);
  ModelFiles files = Open(model, "config.json");
  files.config.update(*ParseJson(changes, "changes"));
  files.config.erase(erased);
  files.random = RandomWeights{};
  auto spec = DescribeDecoder(files, *device);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *std::move(spec) : DecoderSpec();
}

// As published, where transformers' own class is spelled otherwise.
TEST(FamilyKeysTest, NamesOfPublishedFiles) {
  for (const auto& [model, name] :
       {std::pair{"mpt", R"({"architectures": ["MPTForCausalLM"]})"},
        std::pair{"exaone_moe",
                  R"({"architectures": ["ExaoneMoEForCausalLM"]})"}}) {
    EXPECT_FALSE(Described(model, name).layers.empty());
  }
}

// Which layers of GPT-Neo have windows, by any of three.
TEST(FamilyKeysTest, GptNeosWindows) {
  for (const auto& [changes, windows] :
       {std::pair{R"({})", std::vector<int>{0, 32}},
        {R"({"attention_layers": ["local", "global"]})", {32, 0}},
        {R"({"attention_layers": null,
             "attention_types": [[["local"], 2]]})",
         {32, 32}},
        {R"({"attention_layers": null, "attention_types": null})", {0, 32}}}) {
    SCOPED_TRACE(changes);
    const DecoderSpec spec = Described("gpt_neo", changes);
    ASSERT_EQ(spec.layers.size(), windows.size());
    for (size_t i = 0; i < windows.size(); ++i) {
      EXPECT_EQ(std::get<AttentionSpec>(spec.layers[i].blocks[0].part).window,
                windows[i]);
    }
  }
}

// Layers with one base share their rope; without lists the first and every
// fourth layer see all, and all rotate alike.
TEST(FamilyKeysTest, GranitesLayers) {
  const DecoderSpec spec = Described("granite_swa", R"({
      "num_hidden_layers": 5, "layer_types": null,
      "layer_rope_theta": [50.0, 0, 70.0, 50.0, 0.0]})");
  const DecoderSpec mixture = Described("granitemoe_swa", R"({
      "num_hidden_layers": 5, "layer_types": null, "sliding_window": 7,
      "layer_rope_theta": null})");
  ASSERT_EQ(spec.layers.size(), 5u);
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[1].theta, 70.0);
  ASSERT_EQ(mixture.ropes.size(), 1u);
  const int ropes[] = {0, -1, 1, 0, -1};
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.rope, ropes[i]);
    EXPECT_EQ(attention.window, i % 4 == 0 ? 0 : 32);
    const auto& other =
        std::get<AttentionSpec>(mixture.layers[i].blocks[0].part);
    EXPECT_EQ(other.rope, 0);
    EXPECT_EQ(other.window, i % 4 == 0 ? 0 : 7);
    EXPECT_EQ(other.sinks,
              "model.layers." + std::to_string(i) + ".self_attn.sinks");
  }
}

// Sarvam's own names of keys, and of YaRN; queries that nothing is said of.
TEST(FamilyKeysTest, SarvamsKeys) {
  const DecoderSpec spec = Described("sarvam_mla", R"({
      "num_experts": 6, "num_shared_experts": 2, "rope_scaling": {
          "type": "deepseek_yarn", "factor": 40.0,
          "original_max_position_embeddings": 128, "mscale_all_dim": 1.0}})",
                                     "q_lora_rank");
  ASSERT_EQ(spec.ropes.size(), 1u);
  EXPECT_EQ(spec.ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec.ropes[0].factor, 40.0);
  const auto& latent =
      std::get<LatentAttentionSpec>(spec.layers[0].blocks[0].part);
  EXPECT_EQ(latent.query.size(), 1u);
  const auto& moe = std::get<MoeSpec>(spec.layers[0].blocks[1].part);
  EXPECT_EQ(moe.experts.size(), 6u);
  EXPECT_EQ(moe.shared->width, 32);
  const DecoderSpec other = Described("sarvam_moe", R"({
      "use_qkv_bias": true, "use_qk_norm": false, "first_k_dense_replace": 1,
      "num_hidden_layers": 2})");
  const auto& attention =
      std::get<AttentionSpec>(other.layers[1].blocks[0].part);
  EXPECT_TRUE(attention.qkv[0].bias);
  EXPECT_FALSE(attention.output.bias);
  EXPECT_EQ(attention.q_norm.kind, NormKind::kNone);
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(other.layers[0].blocks[1].part));
  EXPECT_EQ(std::get<MoeSpec>(other.layers[1].blocks[1].part).correction,
            "model.layers.1.mlp.gate.expert_bias");
}

// Layers of A.X-K1 without experts have no norm after the MLP; a correction of
// the choice is taken where there is one, whatever topk_method says.
TEST(FamilyKeysTest, AxsNorms) {
  const DecoderSpec spec = Described("axk1", R"({"num_hidden_layers": 2,
      "first_k_dense_replace": 1, "topk_method": "greedy"})");
  ASSERT_EQ(spec.layers.size(), 2u);
  EXPECT_EQ(spec.layers[0].blocks[1].post_norm.kind, NormKind::kNone);
  EXPECT_EQ(spec.layers[1].blocks[1].post_norm.name,
            "model.layers.1.post_mlp_layernorm");
  EXPECT_EQ(std::get<MoeSpec>(spec.layers[1].blocks[1].part).correction, "");
}

// What LFM3 assumes where nothing is said.
TEST(FamilyKeysTest, Lfm3sLayers) {
  const DecoderSpec spec = Described("lfm3", R"({"num_hidden_layers": 7,
      "layer_types": null, "rope_parameters": null, "sliding_window": 9})");
  ASSERT_EQ(spec.layers.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const auto* attention =
        std::get_if<AttentionSpec>(&spec.layers[i].blocks[0].part);
    ASSERT_EQ(attention != nullptr, i > 0 && i % 2 == 0);
    if (attention == nullptr) continue;
    EXPECT_EQ(attention->window, i == 4 ? 9 : 0);
    const RopeSpec& rope = spec.ropes[static_cast<size_t>(attention->rope)];
    EXPECT_EQ(rope.theta, i == 4 ? 1e4 : 1e6);
    EXPECT_EQ(rope.rotated_pairs, i == 4 ? 0 : attention->head_dim / 4);
  }
  const DecoderSpec plain = Described("lfm3", R"({"use_sandwich_norm": false,
      "use_attention_gate": false, "rms_norm_eps": 0.25})");
  EXPECT_EQ(plain.final_norm.epsilon, 0.25f);
  EXPECT_EQ(plain.layers[0].blocks[0].post_norm.kind, NormKind::kNone);
  EXPECT_FALSE(std::get<AttentionSpec>(plain.layers[2].blocks[0].part).gated);
}

// Layers of Hunyuan differ in what their lists say; the shared MLP is as wide
// as so many of intermediate_size.
TEST(FamilyKeysTest, HunyuansLists) {
  const DecoderSpec spec = Described("hunyuan_v1_moe", R"({
      "num_hidden_layers": 2, "moe_topk": [1, 3], "num_experts": [4, 5],
      "moe_intermediate_size": [16, 48], "num_shared_expert": [1, 2]})");
  ASSERT_EQ(spec.layers.size(), 2u);
  const int64_t wanted[2][4] = {{1, 4, 16, 32}, {3, 5, 48, 64}};
  for (size_t i = 0; i < 2; ++i) {
    const auto& moe = std::get<MoeSpec>(spec.layers[i].blocks[1].part);
    EXPECT_EQ(moe.routing.top_k, wanted[i][0]);
    EXPECT_EQ(static_cast<int64_t>(moe.experts.size()), wanted[i][1]);
    EXPECT_EQ(moe.experts[0].width, wanted[i][2]);
    EXPECT_EQ(moe.shared->width, wanted[i][3]);
  }
  const DecoderSpec plain =
      Described("hunyuan_v1_dense", R"({"use_qk_norm": false, "rope_scaling": {
          "type": "dynamic", "alpha": 0, "factor": 2.0}})");
  EXPECT_EQ(std::get<AttentionSpec>(plain.layers[0].blocks[0].part).q_norm.kind,
            NormKind::kNone);
  EXPECT_EQ(plain.ropes[0].scaling, RopeScaling::kDynamic);
}

// Layers without experts come first, and count their windows for themselves;
// they have rope where they see everything, unless some of them do not.
TEST(FamilyKeysTest, CoheresLayers) {
  const DecoderSpec spec = Described("cohere2_moe", R"({
      "num_hidden_layers": 7, "first_k_dense_replace": 2, "layer_types": null,
      "sliding_window_pattern": 3, "num_shared_experts": 2})");
  ASSERT_EQ(spec.layers.size(), 7u);
  const int windows[] = {0, 0, 32, 32, 0, 32, 32};
  const int ropes[] = {0, 0, 0, 0, -1, 0, 0};
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.window, windows[i]);
    EXPECT_EQ(attention.rope, ropes[i]);
    EXPECT_EQ(std::holds_alternative<MoeSpec>(spec.layers[i].blocks[1].part),
              i >= 2);
  }
  const auto& moe = std::get<MoeSpec>(spec.layers[2].blocks[1].part);
  EXPECT_EQ(moe.routing.scale, 0.5f);
  EXPECT_EQ(moe.shared->inner_scale, 0.5f);
  EXPECT_EQ(moe.shared->width, 64);
  const DecoderSpec mixed = Described("cohere2_moe", R"({
      "first_k_dense_replace": 2, "layer_types": null,
      "prefix_dense_sliding_window_pattern": 2})");
  EXPECT_EQ(std::get<AttentionSpec>(mixed.layers[0].blocks[0].part).window, 32);
  EXPECT_EQ(std::get<AttentionSpec>(mixed.layers[1].blocks[0].part).rope, -1);
  const DecoderSpec added = Described("cohere2_moe", R"({
      "shared_expert_combination_strategy": "sum", "rms_norm_eps": 0.5,
      "expert_selection_fn": "softmax", "norm_topk_prob": false})");
  const auto& sum = std::get<MoeSpec>(added.layers[1].blocks[1].part);
  EXPECT_EQ(sum.routing.scale, 1.0f);
  EXPECT_EQ(sum.routing.score, RoutingScore::kSoftmax);
  EXPECT_TRUE(sum.routing.normalised);
  EXPECT_EQ(sum.shared->inner_scale, 1.0f);
  EXPECT_EQ(added.layers[0].pre_norm.kind, NormKind::kRms);
  EXPECT_EQ(added.final_norm.epsilon, 0.5f);
}

// What is absent is as transformers has it, which is as the model is.
TEST(FamilyKeysTest, MimosLayers) {
  const DecoderSpec spec = Described("mimo_v2_flash", R"({
      "num_hidden_layers": 7, "hybrid_layer_pattern": null,
      "moe_layer_freq": null, "swa_num_key_value_heads": null,
      "sliding_window": null, "sliding_window_size": 128,
      "routed_scaling_factor": null, "attention_value_scale": null,
      "partial_rotary_factor": null, "swa_rope_theta": null})");
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    const bool slides = i != 0 && i != 5;
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.window, slides ? 129 : 0);
    EXPECT_EQ(attention.num_kv_heads, slides ? 2 : 1);
    EXPECT_EQ(attention.sinks.empty(), !slides);
    EXPECT_EQ(attention.value_dim, 16);
    EXPECT_EQ(attention.context_scale, 1.0f);
    EXPECT_EQ(std::holds_alternative<MoeSpec>(spec.layers[i].blocks[1].part),
              i > 0);
  }
  EXPECT_EQ(spec.ropes[0].rotary_dim, 10);  // 0.334 of 32
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
  const DecoderSpec absent =
      Described("mimo_v2_flash", R"({"sliding_window_size": null})",
                "attention_value_scale");
  const auto& attention =
      std::get<AttentionSpec>(absent.layers[1].blocks[0].part);
  EXPECT_EQ(attention.context_scale, 0.707f);
  EXPECT_EQ(attention.window, 31);
}

// Heads and gates of each layer; what is absent is as transformers has it.
TEST(FamilyKeysTest, LagunasLayers) {
  const DecoderSpec spec = Described("laguna", R"({
      "num_hidden_layers": 3, "num_attention_heads_per_layer": [2, 3, 1],
      "gating": "per-element", "layer_types": null, "mlp_layer_types": null,
      "mlp_only_layers": [0], "rope_parameters": null,
      "moe_router_logit_softcapping": 3.0})");
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const int heads[] = {2, 3, 1};
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[i].blocks[0].part);
    EXPECT_EQ(attention.num_heads, heads[i]);
    EXPECT_EQ(attention.qkv[1].n, heads[i] * 16);
    EXPECT_FALSE(attention.head_gates);
    EXPECT_EQ(attention.window, 0);
    const auto* moe = std::get_if<MoeSpec>(&spec.layers[i].blocks[1].part);
    ASSERT_EQ(moe != nullptr, i > 0);
    if (moe == nullptr) continue;
    EXPECT_EQ(moe->router_softcap, 3.0f);
  }
  EXPECT_EQ(spec.ropes[0].rotary_dim, 8);
  EXPECT_EQ(spec.ropes[0].theta, 5e5);
  EXPECT_EQ(spec.ropes[1].rotary_dim, 16);
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
  const DecoderSpec golden = Described("laguna", "{}", "gating");
  const auto& attention =
      std::get<AttentionSpec>(golden.layers[1].blocks[0].part);
  EXPECT_TRUE(attention.head_gates);
  EXPECT_EQ(attention.qkv[1].n, 4);
}

// Laguna M.1 has a window of 0 and no layer that slides.
TEST(FamilyKeysTest, LagunaWithoutWindows) {
  const DecoderSpec spec = Described("laguna", R"({"sliding_window": 0,
      "layer_types": null, "num_attention_heads_per_layer": null,
      "moe_router_use_sigmoid": true, "moe_router_score_func": "sigmoid"})");
  ASSERT_EQ(spec.layers.size(), 2u);
  for (const LayerSpec& layer : spec.layers) {
    const auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
    EXPECT_EQ(attention.window, 0);
    EXPECT_EQ(attention.num_heads, 2);
    EXPECT_EQ(attention.rope, 0);
  }
}

// The golden model has the published factors, which are the defaults.
TEST(FamilyKeysTest, MiniCpm3sFactors) {
  const DecoderSpec spec =
      Described("minicpm3", R"({"scale_emb": 3, "scale_depth": 2.5,
                      "dim_model_base": 8})");
  EXPECT_EQ(spec.embedding_scale, 3.0f);
  EXPECT_EQ(spec.logit_scale, 0.25f);
  EXPECT_FLOAT_EQ(spec.layers[0].blocks[0].scale, 2.5f / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ(spec.layers[1].blocks[1].scale, 2.5f / std::sqrt(2.0f));
  const DecoderSpec plain =
      Described("minicpm3", R"({"scale_depth": null, "dim_model_base": null})");
  EXPECT_EQ(plain.logit_scale, 1.0f);
  EXPECT_EQ(plain.layers[0].blocks[0].scale, 1.0f);
}

// null: what heads share of the width, and a head of keys for each of queries;
// absent, the family's numbers.
TEST(FamilyKeysTest, NullIsNotAbsent) {
  for (const char* model : {"seed_oss", "ernie4_5", "ministral3"}) {
    SCOPED_TRACE(model);
    const DecoderSpec spec =
        Described(model, R"({"head_dim": null, "num_key_value_heads": null})");
    const auto& attention =
        std::get<AttentionSpec>(spec.layers[0].blocks[0].part);
    EXPECT_EQ(attention.head_dim, 8);
    EXPECT_EQ(attention.num_kv_heads, 4);
    const DecoderSpec absent = Described(model, "{}", "head_dim");
    EXPECT_EQ(std::get<AttentionSpec>(absent.layers[0].blocks[0].part).head_dim,
              128);
  }
}

// Experts of LFM2 are scaled, and MLPs are as wide as they say.
TEST(FamilyKeysTest, Lfm2sExperts) {
  const DecoderSpec spec = Described(
      "lfm2_moe", R"({"routed_scaling_factor": 2.0, "use_expert_bias": false,
                      "num_dense_layers": 1})");
  const auto& moe = std::get<MoeSpec>(spec.layers[1].blocks[1].part);
  EXPECT_EQ(moe.routing.scale, 2.0f);
  EXPECT_EQ(moe.correction, "");
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[0].blocks[1].part).width, 64);
}

// What config.json says of tying and what files store, as transformers 5 has
// it: a head that is stored and differs is used, equal ones are one matrix, and
// either of both serves where it is alone.
TEST(FamilyKeysTest, TiedHeadsThatAreStored) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  constexpr const char* kHead = "lm_head.weight";
  struct Case {
    bool ties;
    bool has_embedding;
    const char* head_from;  // "": not stored
    const char* embedding;  // that the spec then names
    const char* head;
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  constexpr auto kMissing = absl::StatusCode::kNotFound;
  const Case cases[] = {
      {true, true, "", kEmbedding, ""},
      {true, true, kEmbedding, kEmbedding, ""},
      {true, true, kHead, kEmbedding, "lm_head"},
      {true, false, kHead, kHead, ""},
      {true, false, "", "", "", kMissing},
      {false, true, kEmbedding, kEmbedding, "lm_head"},
      {false, true, kHead, kEmbedding, "lm_head"},
      {false, true, "", "", "", kMissing},
      {false, false, kHead, "", "", kMissing},
  };
  const auto device = Cpu(1);
  const ModelFiles stored = Open("llama2", "config.json");
  for (const bool mapped : {true, false}) {
    for (const Case& row : cases) {
      SCOPED_TRACE(::testing::Message()
                   << row.ties << row.has_embedding << row.head_from);
      auto weights = std::make_shared<MemoryWeights>(mapped);
      for (const WeightInfo& info : stored.weights->weights()) {
        if (info.name == kHead) continue;
        if (info.name == kEmbedding && !row.has_embedding) continue;
        weights->Add(info, stored.weights->Mapped(info));
      }
      if (const WeightInfo* from = stored.weights->Find(row.head_from)) {
        weights->Add(kHead, from->dtype, from->shape,
                     stored.weights->Mapped(*from));
      }
      ModelFiles files = stored;
      files.weights = weights;
      files.config["tie_word_embeddings"] = row.ties;
      const auto spec = DescribeDecoder(files, *device);
      EXPECT_EQ(spec.status().code(), row.code) << spec.status();
      if (!spec.ok()) continue;
      EXPECT_EQ(spec->embedding, row.embedding);
      EXPECT_EQ(spec->head, row.head);
    }
  }
}

// A difference in the last byte is one.
TEST(FamilyKeysTest, HeadsAreComparedToTheirEnds) {
  const auto device = Cpu(1);
  for (const bool mapped : {true, false}) {
    for (const bool differs : {false, true}) {
      ModelFiles files = Open("llama2", "config.json");
      // Several of the pieces that are compared.
      const int64_t vocab =
          3 + (200 << 10) / files.config["hidden_size"].get<int64_t>() / 4;
      files.config["vocab_size"] = vocab;
      files.config["tie_word_embeddings"] = true;
      auto weights = std::make_shared<MemoryWeights>(mapped);
      for (const WeightInfo& info : files.weights->weights()) {
        if (!info.name.starts_with("model.layers") &&
            info.name != "model.norm.weight") {
          continue;
        }
        weights->Add(info, files.weights->Mapped(info));
      }
      const int64_t hidden = files.config["hidden_size"];
      std::vector<float> values(static_cast<size_t>(vocab * hidden), 0.5f);
      weights->Add("model.embed_tokens.weight", DType::kF32, {vocab, hidden},
                   values.data());
      if (differs) values.back() = 0.25f;
      weights->Add("lm_head.weight", DType::kF32, {vocab, hidden},
                   values.data());
      files.weights = weights;
      const auto spec = DescribeDecoder(files, *device);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->head, differs ? "lm_head" : "");
    }
  }
}

// Its own names come before the usual ones, which old files write besides.
TEST(FamilyKeysTest, NeoxsRope) {
  const auto rope = [](const char* changes) {
    return Described("gpt_neox", changes).ropes.at(0);
  };
  constexpr char kOwn[] = R"({"rotary_emb_base": 300, "rotary_pct": 0.5,
      "rope_theta": 400, "partial_rotary_factor": 0.25})";
  EXPECT_EQ(rope(kOwn).theta, 300.0);
  EXPECT_EQ(rope(kOwn).rotary_dim, 16);
  constexpr char kNewer[] = R"({"rotary_emb_base": 300, "rotary_pct": 0.5,
      "rope_parameters": {"rope_theta": 500, "partial_rotary_factor": 1.0}})";
  EXPECT_EQ(rope(kNewer).theta, 500.0);
  EXPECT_EQ(rope(kNewer).rotary_dim, 32);
}

TEST(FamilyKeysTest, CommandRsLength) {
  EXPECT_EQ(Described("cohere", "{}").max_positions, 512);
  EXPECT_EQ(Described("cohere", R"({"model_max_length": 4096})").max_positions,
            4096);
}

TEST(FamilyKeysTest, FalconsWidthByItsOldName) {
  const DecoderSpec usual = Described("falcon", "{}");
  const std::string old =
      "{\"n_embed\": " + std::to_string(usual.hidden_size) + "}";
  EXPECT_EQ(Described("falcon", old.c_str(), "hidden_size").hidden_size,
            usual.hidden_size);
}

// Queries are scaled from the span's first token on, where Llama 4's are from
// the one before.
TEST(FamilyKeysTest, TemperatureCountsFromZero) {
  const DecoderSpec spec = Described("ministral3", "{}");
  const auto& attention =
      std::get<AttentionSpec>(spec.layers[0].blocks[0].part);
  ASSERT_GE(attention.query_factor, 0);
  const RopeFrequencies factors = ComputeRopeFrequencies(
      spec.ropes[static_cast<size_t>(attention.query_factor)]);
  EXPECT_EQ(factors.FactorAt(31), 1.0f);
  EXPECT_FLOAT_EQ(factors.FactorAt(32), 1.0f + 0.5f * std::log(2.0f));
}

}  // namespace
}  // namespace inlay
