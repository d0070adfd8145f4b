// What GGUF files cannot say of families with experts, latents and recurrent
// layers, and what is asked for wrongly.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "core/quantize/quantize.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/quantize/family_files.h"
#include "tests/support/sanitized.h"

namespace inlay {
namespace {

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kNotSaid = absl::StatusCode::kUnimplemented;

struct Wrong {
  const char* model;
  const char* key;      // that the message names
  const char* changes;  // null: the key's absence
  absl::StatusCode code = kNotSaid;
};
constexpr Wrong kWrong[] = {
    // Layers that differ.
    {"nemotron_nas", "block_configs", R"({"block_configs": [1]})", kBad},
    {"nemotron_nas", "block_configs",
     R"({"num_hidden_layers": 1, "block_configs": [{"attention":
         {"n_heads_in_group": null, "replace_with_linear": true}}]})"},
    {"nemotron_nas", "block_configs",
     R"({"num_hidden_layers": 1, "block_configs": [{"attention":
         {"n_heads_in_group": 1, "window_length": 8}}]})"},
    {"nemotron_nas", "block_configs",
     R"({"num_hidden_layers": 1, "block_configs": [{"attention":
         {"no_op": true}, "ffn": {"ffn_mult": 1.0, "sparsify": [1]}}]})"},
    {"nemotron_nas", "n_heads_in_group",
     R"({"num_hidden_layers": 1, "block_configs": [{"attention":
         {"n_heads_in_group": 3}}]})",
     kBad},
    {"nemotron_nas", "intermediate_size", R"({"block_configs": null})", kBad},
    {"nemotron_nas", "num_key_value_heads_per_layer",
     R"({"block_configs": null, "intermediate_size": 32,
         "num_key_value_heads_per_layer": [1, 0, 1, 1]})",
     kBad},
    {"qwen", "no_bias", R"({"no_bias": false})"},
    {"qwen", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"smallthinker", "rope_layout", R"({"rope_layout": [1, 1]})"},
    {"smallthinker", "rope_layout", R"({"rope_layout": {"0": 1}})"},
    {"smallthinker", "sliding_window_layout",
     R"({"sliding_window_layout": [1, 1]})"},
    {"bailing_moe", "use_bias", R"({"use_bias": true})"},
    {"bailing_moe", "use_qkv_bias", R"({"use_qkv_bias": true})"},
    {"bailing_moe", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"bailing_moe", "num_shared_experts", R"({"num_shared_experts": null})",
     kBad},
    {"openelm", "tie_word_embeddings",
     R"({"share_input_output_layers": false})"},
    {"openelm", "normalize_qk_projections",
     R"({"normalize_qk_projections": false})"},
    {"openelm", "num_kv_heads", R"({"num_kv_heads": [1, 3]})", kBad},
    {"openelm", "ffn_multipliers", R"({"ffn_multipliers": 1})", kBad},
    {"grove_moe", "mlp_only_layers", R"({"mlp_only_layers": [0]})"},
    {"grove_moe", "use_sliding_window", R"({"use_sliding_window": true})"},
    {"arctic", "moe_layer_frequency", R"({"moe_layer_frequency": null})"},
    {"arctic", "parallel_attn_mlp_res", R"({"parallel_attn_mlp_res": false})"},
    {"arctic", "sliding_window", R"({"sliding_window": 8})"},
    {"plm", "tie_word_embeddings", R"({"tie_word_embeddings": false})"},
    {"plm", "hidden_act", R"({"hidden_act": "silu"})"},
    {"granite_swa", "sliding_window", R"({"sliding_window": null})"},
    {"granite_swa", "layer_rope_theta",
     R"({"layer_rope_theta": [100.0, 50.0]})"},
    {"granite_swa", "layer_rope_theta", R"({"layer_rope_theta": [100.0]})",
     kBad},
    {"granitemoe_swa", "layer_rope_theta",
     R"({"layer_rope_theta": [100000.0, 500.0]})"},
    {"granitemoe_swa", "num_experts", R"({"num_local_experts": null})", kBad},
    {"deepseek_v4", "scoring_func", R"({"scoring_func": "sigmoid"})"},
    {"deepseek_v4", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"deepseek_v4", "sliding_window", R"({"sliding_window": null})"},
    {"deepseek_v4", "compress_rate_csa", R"({"compress_rate_csa": 8})"},
    {"deepseek_v4", "compress_rates",
     R"({"compress_rates": {"heavily_compressed_attention": 64}})"},
    {"deepseek_v4", "mlp_layer_types",
     R"({"mlp_layer_types": ["moe", "hash_moe", "moe"]})"},
    {"deepseek_v4", "swiglu_limit", R"({"swiglu_limit": -1})", kBad},
    {"deepseek_v4", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"deepseek_v4", "qk_rope_head_dim", R"({"qk_rope_head_dim": 64})", kBad},
    {"deepseek_v4", "n_routed_experts", nullptr, kBad},
    {"deepseek_v4", "rope_parameters.main",
     R"({"rope_parameters": {"main": {"rope_type": "yarn"}}})"},
    {"minimax", "linear_attn_alpha_factor",
     R"({"linear_attn_alpha_factor": 3.0})"},
    {"minimax", "mlp_alpha_factor", R"({"mlp_alpha_factor": 3.0})"},
    {"minimax", "full_attn_beta_factor", R"({"full_attn_beta_factor": 0.5})"},
    {"minimax", "mlp_beta_factor", R"({"mlp_beta_factor": 0.5})"},
    {"minimax", "sliding_window", R"({"sliding_window": 8})"},
    {"minimax", "num_local_experts", nullptr, kBad},
    {"minimax_m3", "swiglu_limit", R"({"swiglu_limit": 6.0})"},
    {"minimax_m3", "swiglu_alpha", R"({"swiglu_alpha": 1.5})"},
    {"minimax_m3", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"minimax_m3", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"minimax_m3", "moe_layer_freq", R"({"moe_layer_freq": [1, 0]})"},
    {"minimax_m3", "mlp_layer_types",
     R"({"mlp_layer_types": ["sparse", "dense"]})"},
    {"minimax_m3", "sparse_attention_config",
     R"({"sparse_attention_config": {"sparse_attention_freq": [1, 1]}})"},
    {"minimax_m3", "layer_types",
     R"({"layer_types": ["full_attention", "full_attention"]})"},
    {"minimax_m3", "shared_intermediate_size",
     R"({"shared_intermediate_size": 12})"},
    {"minimax_m3", "sparse_topk_blocks",
     R"({"sparse_attention_config": {"sparse_topk_blocks": -1,
         "sparse_attention_freq": [0, 1]}})",
     kBad},
    // Encoders.
    {"modernbert_labels", "layer_types",
     R"({"layer_types": ["sliding_attention", "full_attention",
         "full_attention", "full_attention"]})"},
    {"modernbert_labels", "rope_parameters",
     R"({"rope_parameters": {"full_attention": {"rope_type": "linear"}}})"},
    {"modernbert_labels", "classifier_pooling",
     R"({"classifier_pooling": "max"})"},
    {"modernbert_labels", "classifier_activation",
     R"({"classifier_activation": "relu"})"},
    {"modernbert_labels", "num_hidden_layers", nullptr, kBad},
    {"nomic_bert", "activation_function",
     R"({"activation_function": "geglu"})"},
    {"nomic_bert", "rope_parameters",
     R"({"rope_parameters": {"rope_type": "linear"}})"},
    {"nomic_bert", "max_trained_positions",
     R"({"rotary_scaling_factor": 2, "max_trained_positions": 0})", kBad},
    {"mt5_encoder", "relative_attention_max_distance",
     R"({"relative_attention_max_distance": 64})"},
    {"mt5_encoder", "feed_forward_proj",
     R"({"feed_forward_proj": "gated-silu"})"},
    {"mt5_encoder", "dense_act_fn", R"({"dense_act_fn": "relu"})"},
    {"mt5_encoder", "num_layers", nullptr, kBad},
    {"nomic_bert_moe", "experts_bias", R"({"experts_bias": true})"},
    {"nomic_bert_moe", "rope_scaling",
     R"({"rope_scaling": {"type": "linear"}})"},
    {"jina_embeddings_v3", "rope_parameters",
     R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})"},
    {"jina_embeddings_v3", "hidden_act", R"({"hidden_act": "relu"})"},
    {"bert_labels", "hidden_act", R"({"hidden_act": "relu"})"},
    {"bert_labels", "id2label", R"({"id2label": {"1": "x"}})", kBad},
    {"bert_labels", "hidden_size", nullptr, kBad},
    {"distilbert_labels", "activation", R"({"activation": "relu"})"},
    {"distilbert_labels", "dim", nullptr, kBad},
    {"gemma3_embedding", "is_causal", R"({"is_causal": false})"},
    {"gemma3_embedding", "use_bidirectional_attention",
     R"({"use_bidirectional_attention": false})"},
    // Experts.
    {"qwen2_moe", "mlp_only_layers", R"({"mlp_only_layers": [2]})"},
    {"qwen2_moe", "norm_topk_prob", R"({"norm_topk_prob": true})"},
    {"qwen3_moe", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"qwen3_moe", "norm_topk_prob", nullptr, kNotSaid},
    {"qwen3_moe", "decoder_sparse_step", R"({"decoder_sparse_step": 2})"},
    {"qwen3_next", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"mixtral", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"gpt_oss", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"minimax_m2", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"minimax_m2", "scoring_func", R"({"scoring_func": "softmax"})"},
    {"minimax_m2", "use_routing_bias", R"({"use_routing_bias": false})"},
    {"phi", "qk_layernorm", R"({"qk_layernorm": true})"},
    {"falcon", "alibi", R"({"alibi": true})"},
    {"falcon", "bias", R"({"bias": true})"},
    {"falcon", "parallel_attn", R"({"parallel_attn": null})"},
    {"falcon", "activation", R"({"activation": "relu"})"},
    {"olmoe", "clip_qkv", R"({"clip_qkv": 8.0})"},
    {"ernie4_5_moe", "use_bias", R"({"use_bias": true})"},
    {"hunyuan_v1_moe", "moe_topk", R"({"moe_topk": [2, 1]})"},
    {"exaone", "hidden_act", R"({"activation_function": "gelu"})"},
    {"apertus", "hidden_act", R"({"hidden_act": "silu"})"},
    {"apertus", "xielu.beta", R"({"xielu": {"alpha_p": [1, 1],
        "alpha_n": [1, 1]}})",
     kBad},
    {"afmoe", "mup_enabled", R"({"mup_enabled": false})"},
    {"afmoe", "layer_types", R"({"layer_types": ["full_attention",
        "sliding_attention"]})"},
    {"afmoe", "global_attn_every_n_layers",
     R"({"global_attn_every_n_layers": 2})"},
    {"phimoe", "router_jitter_noise", R"({"router_jitter_noise": 0.1})"},
    {"phimoe", "long_mscale", R"({"rope_scaling": {"type": "longrope",
        "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "long_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "short_mscale": 1.2, "long_mscale": 1.3}})"},
    {"step3p5", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"step3p5", "partial_rotary_factor",
     R"({"partial_rotary_factors": [1.0, 1.0, 1.0]})"},
    {"step3p5", "partial_rotary_factor",
     R"({"partial_rotary_factors": [0.5, 0.5, 0.5]})"},
    {"step3p5", "rope_parameters",
     R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}})"},
    {"step3p5", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"baichuan", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"baichuan", "position_embedding", R"({"position_embedding": "none"})"},
    {"baichuan", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"jina_bert", "feed_forward_type", R"({"feed_forward_type": "reglu"})"},
    {"jais2", "hidden_act", R"({"hidden_act": "silu"})"},
    {"cohere2_moe", "shared_expert_combination_strategy",
     R"({"shared_expert_combination_strategy": "sum"})"},
    {"cohere2_moe", "prefix_dense_sliding_window_pattern",
     R"({"prefix_dense_sliding_window_pattern": 2})"},
    {"cohere2_moe", "mlp_layer_types",
     R"({"mlp_layer_types": ["sparse", "dense"]})"},
    {"cohere2_moe", "sliding_window", R"({"sliding_window": null})"},
    {"cohere2_moe", "attention_bias", R"({"attention_bias": true})"},
    {"cohere2_moe", "num_experts", nullptr, kBad},
    {"mimo_v2_flash", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"mimo_v2_flash", "routed_scaling_factor",
     R"({"routed_scaling_factor": 2.5})"},
    {"mimo_v2_flash", "n_group", R"({"n_group": 2})"},
    {"mimo_v2_flash", "attention_bias", R"({"attention_bias": true})"},
    {"mimo_v2_flash", "sliding_window",
     R"({"sliding_window": null, "sliding_window_size": null})"},
    {"mimo_v2_flash", "partial_rotary_factor",
     R"({"rope_parameters": {"full_attention": {},
         "sliding_attention": {"partial_rotary_factor": 1.0}}})"},
    {"mellum", "mlp_layer_types",
     R"({"mlp_layer_types": ["dense", "sparse"]})"},
    {"mellum", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"mellum", "attention_bias", R"({"attention_bias": true})"},
    {"mellum", "sliding_window", R"({"sliding_window": null})"},
    {"mellum", "rope_parameters",
     R"({"rope_parameters": {"sliding_attention": {"rope_type": "linear",
         "factor": 2.0}}})"},
    {"laguna", "attention_bias", R"({"attention_bias": true})"},
    {"laguna", "moe_router_logit_softcapping",
     R"({"moe_router_logit_softcapping": 5.0})"},
    {"laguna", "mlp_layer_types",
     R"({"mlp_layer_types": ["sparse", "dense"]})"},
    {"laguna", "layer_types",
     R"({"layer_types": ["sliding_attention", "full_attention"]})"},
    {"laguna", "sliding_window", R"({"sliding_window": null})"},
    {"laguna", "num_attention_heads_per_layer",
     R"({"num_attention_heads_per_layer": [2, 0]})", kBad},
    {"laguna", "rope_parameters",
     R"({"rope_parameters": {"full_attention": {}, "sliding_attention": {
         "rope_type": "linear", "factor": 2.0}}})"},
    {"hy_v3", "attention_bias", R"({"attention_bias": true})"},
    {"minicpm", "scale_depth", R"({"scale_depth": null})"},
    {"deepseek", "norm_topk_prob", R"({"norm_topk_prob": true})"},
    {"deepseek", "n_shared_experts", R"({"n_shared_experts": 0})", kBad},
    {"sarvam_moe", "use_qkv_bias", R"({"use_qkv_bias": true})"},
    {"sarvam_moe", "use_qk_norm", R"({"use_qk_norm": false})"},
    {"sarvam_moe", "tie_word_embeddings", R"({"tie_word_embeddings": true})"},
    {"sarvam_moe", "routed_scaling_factor", nullptr, kBad},
    {"youtu", "rope_interleave", R"({"rope_interleave": false})"},
    {"dbrx", "moe_normalize_expert_weights",
     R"({"ffn_config": {"moe_normalize_expert_weights": null}})"},
    {"dbrx", "ffn_act_fn",
     R"({"ffn_config": {"ffn_act_fn": {"name": "gelu"}}})"},
    {"mpt", "softmax_scale", R"({"attn_config": {"softmax_scale": 0.5}})"},
    {"gpt_bigcode", "scale_attn_weights", R"({"scale_attn_weights": false})"},
    {"gpt_bigcode", "activation_function",
     R"({"activation_function": "relu"})"},
    {"exaone_moe", "sliding_window", R"({"sliding_window": null})"},
    {"olmo", "attention_bias", R"({"attention_bias": true})"},
    {"arcee", "hidden_act", R"({"hidden_act": "silu"})"},
    {"dots1", "sliding_window", R"({"sliding_window": 64})"},
    {"muse_glimmer", "post_norm_eps", R"({"post_norm_eps": 1e-5})"},
    {"muse_glimmer", "layer_rope_theta",
     R"({"layer_rope_theta": [10000.0, 10000.0, 10000.0, 0]})"},
    {"muse_glimmer", "hidden_activation", R"({"hidden_activation": "gelu"})"},
    {"muse_glimmer", "attention_bias", R"({"attention_bias": true})"},
    {"deepseek_ocr2", "rope_theta", R"({"rope_theta": 500.0})"},
    {"deepseek_ocr2", "rope_scaling",
     R"({"rope_scaling": {"type": "linear", "factor": 2.0}})"},
    {"deepseek_ocr2", "num_key_value_heads", R"({"num_attention_heads": 2})"},
    {"deepseek_ocr2", "attention_bias", R"({"attention_bias": true})"},
    {"olmoe", "norm_topk_prob", R"({"norm_topk_prob": true})"},
    {"olmoe", "attention_bias", R"({"attention_bias": true})"},
    {"lfm2_moe", "norm_topk_prob", R"({"norm_topk_prob": false})"},
    {"lfm2_moe", "routed_scaling_factor", R"({"routed_scaling_factor": 2.0})"},
    {"ernie4_5_moe", "moe_layer_end_index", R"({"moe_layer_end_index": 0})"},
    {"minicpm3", "scale_emb", R"({"scale_emb": 3})"},
    {"minicpm3", "scale_depth", R"({"scale_depth": null})"},
    {"minicpm3", "dim_model_base", R"({"dim_model_base": 16})"},
    {"deepseek_v3", "moe_layer_freq", R"({"moe_layer_freq": 2})"},
    {"glm_moe_dsa", "mlp_layer_types",
     R"({"mlp_layer_types": ["sparse", "dense", "sparse"]})"},
    {"llama4_text", "moe_layers",
     R"({"interleave_moe_layer_step": 1, "moe_layers": [0]})"},
    {"llama4_text", "moe_layers", R"({"moe_layers": []})"},
    {"llama4_text", "moe_layers", R"({"moe_layers": [2]})"},
    {"deepseek_v3", "first_k_dense_replace", nullptr, kBad},
    {"deepseek_v3", "routed_scaling_factor", nullptr, kBad},
    {"deepseek_v3", "n_routed_experts", nullptr, kBad},
    {"qwen3_moe", "num_experts_per_tok", nullptr, kBad},
    {"qwen3_moe", "num_experts", nullptr, kBad},
    {"qwen3_moe", "moe_intermediate_size", nullptr, kBad},
    {"mixtral", "num_local_experts", nullptr, kBad},
    {"gpt_oss", "num_local_experts", nullptr, kBad},
    {"granitemoehybrid", "num_local_experts", nullptr, kBad},
    {"granitemoehybrid", "shared_intermediate_size", nullptr, kBad},
    {"qwen2_moe", "shared_expert_intermediate_size", nullptr, kBad},
    {"qwen3_next", "shared_expert_intermediate_size", nullptr, kBad},
    {"qwen3_5_moe_text", "shared_expert_intermediate_size", nullptr, kBad},
    {"nemotron_h", "moe_shared_expert_intermediate_size", nullptr, kBad},
    {"kimi_linear", "num_expert_group", R"({"num_expert_group": null})", kBad},
    // Attention.
    {"mixtral", "sliding_window", R"({"sliding_window": 64})"},
    {"gpt_oss", "swiglu_limit", R"({"swiglu_limit": 6.0})"},
    {"gpt_oss", "layer_types", R"({"layer_types": ["full_attention"]})"},
    {"llama4_text", "attn_scale", R"({"attn_scale": 0.4})"},
    {"llama4_text", "floor_scale", R"({"floor_scale": 16})"},
    {"llama4_text", "attention_chunk_size", R"({"attention_chunk_size": 32})"},
    {"llama4_text", "attention_chunk_size",
     R"({"attention_chunk_size": null})"},
    {"llama4_text", "no_rope_layer_interval",
     R"({"no_rope_layer_interval": 3})"},
    {"deepseek_v3", "rope_interleave", R"({"rope_interleave": false})"},
    {"deepseek_v3", "attention_bias", R"({"attention_bias": true})"},
    {"smollm3", "no_rope_layers", R"({"no_rope_layers": [1, 0, 1, 0]})"},
    {"smollm3", "no_rope_layer_interval",
     R"({"no_rope_layers": [], "no_rope_layer_interval": 2})"},
    {"granitemoehybrid", "position_embedding_type",
     R"({"layer_types": ["attention", "attention"]})"},
    {"gemma3n_text", "attention_bias", R"({"attention_bias": true})"},
    {"gemma3n_text", "hidden_activation", R"({"hidden_activation": "silu"})"},
    {"gemma3n_text", "final_logit_softcapping",
     R"({"final_logit_softcapping": null})"},
    {"gemma3n_text", "sliding_window", R"({"sliding_window": null})"},
    {"gemma4_text", "rope_type", R"({"rope_parameters": {"full_attention":
        {"partial_rotary_factor": 0.25}}})"},
    {"gemma4_text", "rope_type", R"({"rope_parameters": {"rope_theta": 1e6,
        "partial_rotary_factor": 0.25}})"},
    {"gemma4_text", "factor", R"({"rope_parameters": {"full_attention":
        {"rope_type": "proportional", "factor": 2.0}}})"},
    {"gemma4_text", "partial_rotary_factor",
     R"({"partial_rotary_factor": 0.5})"},
    {"gemma4_text", "partial_rotary_factor",
     R"({"rope_parameters": {"full_attention": {"rope_type": "proportional"},
         "sliding_attention": {"partial_rotary_factor": 0.5}}})"},
    {"gemma4_text", "rope_type",
     R"({"rope_parameters": {"full_attention": {"rope_type": "proportional"},
         "sliding_attention": {"rope_type": "yarn"}}})"},
    // Recurrent layers.
    {"qwen3_5_text", "attn_output_gate", R"({"attn_output_gate": false})"},
    {"qwen3_5_text", "mrope_section",
     R"({"rope_parameters": {"mrope_section": [4294967298, 1, 1]}})", kBad},
    {"qwen3_5_text", "mrope_section",
     R"({"rope_parameters": {"mrope_section": [2, -1, 1]}})", kBad},
    {"qwen3_5_text", "mrope_section",
     R"({"rope_parameters": {"mrope_section": [1, 1, 1, 1, 1]}})", kBad},
    {"qwen3_5_text", "mrope_section",
     R"({"rope_parameters": {"mrope_section": [0, 0]}})", kBad},
    {"qwen3_5_text", "mrope_section",
     R"({"rope_parameters": {"mrope_section": 4}})", kBad},
    {"mamba2", "time_step_limit", R"({"time_step_limit": [0.0, 0.1]})"},
    {"falcon_mamba", "mixer_rms_eps", R"({"mixer_rms_eps": 0.01})"},
    {"mamba", "hidden_act", R"({"hidden_act": "gelu"})"},
    {"rwkv7", "hidden_act", R"({"hidden_act": "relu"})"},
    {"rwkv7", "norm_eps", R"({"norm_eps": 1e-5})"},
    {"rwkv7", "attn", R"({"attn": {"layers": [1]}})"},
    {"rwkv7", "norm_bias", R"({"norm_bias": false})"},
    {"falcon_h1", "time_step_limit", R"({"time_step_limit": [0.1,
        {"__float__": "Infinity"}]})"},
    {"granitemoehybrid", "time_step_limit",
     R"({"time_step_limit": [0.0, 0.1]})"},
    {"nemotron_h", "time_step_min", R"({"time_step_min": 0.01})"},
    {"falcon_h1", "attention_bias", R"({"attention_bias": true})"},
    {"falcon_h1", "mamba_d_head", nullptr, kBad},
    {"kimi_linear", "mla_use_nope", R"({"mla_use_nope": false})"},
    {"nemotron_h", "hybrid_override_pattern",
     R"({"hybrid_override_pattern": "ME"})", kBad}};

// A golden model whose keys a file can say.
ModelFiles Sayable(const std::string& model) {
  ModelFiles files = Open(model, "config.json");
  if (model == "llama4_text") {
    files.config.update(*ParseJson(kPublishedLlama4, model));
  }
  if (model == "distilbert_labels") {
    files.config["architectures"] = {"DistilBertModel"};
    files.embedding = {};
  }
  if (model == "nomic_bert_moe") files.config["experts_bias"] = false;
  if (model == "afmoe") files.config.erase("layer_types");
  if (model == "phimoe") files.config["router_jitter_noise"] = 0.01;
  if (model == "falcon_mamba") files.config["mixer_rms_eps"] = 1e-6;
  for (const char* sum : {"full_attn", "linear_attn", "mlp"}) {
    if (model != "minimax") break;
    files.config[std::string(sum) + "_alpha_factor"] = 2.5;
    files.config[std::string(sum) + "_beta_factor"] = 1.0;
  }
  if (model == "granitemoe_swa") files.config.erase("layer_rope_theta");
  if (model == "qwen2_moe") files.config["mlp_only_layers"] = Json::array();
  return files;
}

TEST(GgufFamilyErrors, NameWhatCannotBeSaid) {
  const FamilyFiles files;
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.model);
    SCOPED_TRACE(wrong.changes != nullptr ? wrong.changes : wrong.key);
    ModelFiles model = Sayable(wrong.model);
    const absl::Status plain = files.SetKeys(model, files.Path("keys"));
    EXPECT_TRUE(plain.ok()) << plain;
    if (wrong.changes == nullptr) {
      EXPECT_EQ(model.config.erase(wrong.key), 1u);
    } else {
      model.config.update(*ParseJson(wrong.changes, "changes"));
    }
    const absl::Status status = files.SetKeys(model, files.Path("keys"));
    EXPECT_EQ(status.code(), wrong.code) << status;
    EXPECT_NE(status.message().find(wrong.key), std::string::npos) << status;
  }
  // No such family.
  EXPECT_TRUE(absl::IsUnimplemented(
      files.Try(Open("hy_v4", "config.json"), {.type = "f32"}).status()));
}

// The files of a model that cannot be said are none.
TEST(GgufFamilyErrors, NothingIsWritten) {
  const FamilyFiles files;
  ModelFiles model = Open("qwen3_next", "config.json");
  model.config["norm_topk_prob"] = false;
  const absl::Status status = files.Try(model, {.type = "f32"}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_FALSE(std::filesystem::exists(files.Path("tried")));
}

// Nothing in config.json is of the type that it should be: errors, whichever.
TEST(GgufFamilyErrors, AnyConfigIsAnErrorAtMost) {
  const FamilyFiles files;
  for (const char* model : {"qwen3_moe",
                            "gpt_oss",
                            "llama4_text",
                            "deepseek_v3",
                            "glm_moe_dsa",
                            "qwen3_5_moe_text",
                            "gemma4_moe_text",
                            "granitemoehybrid",
                            "falcon_h1",
                            "nemotron_h",
                            "kimi_linear",
                            "lfm2",
                            "minicpm3",
                            "lfm2_moe",
                            "ernie4_5_moe",
                            "falcon_40b",
                            "bloom",
                            "mpt",
                            "gpt_bigcode",
                            "exaone_moe",
                            "cohere2_moe",
                            "mimo_v2_flash",
                            "mellum",
                            "hy_v3",
                            "sarvam_moe",
                            "laguna",
                            "bert_labels",
                            "roberta_labels",
                            "nomic_bert",
                            "jina_embeddings_v3",
                            "eurobert",
                            "modernbert_labels",
                            "gemma3_embedding",
                            "distilbert_labels",
                            "mt5_encoder"}) {
    const ModelFiles plain = Sayable(model);
    size_t of_key = 0;
    for (const auto& [key, value] : plain.config.items()) {
      const Json others[] = {Json::object({{"a", 1}}), Json("text"), Json(-1),
                             Json::array({"b"})};
      ++of_key;  // sanitized, one of them each
      for (size_t i = 0; i < std::size(others); ++i) {
        if (!::inlay::testing::TriedWith(of_key, i, std::size(others)))
          continue;
        ModelFiles changed = plain;
        changed.config[key] = others[i];
        const auto report = files.Try(changed, {.type = "f32"});
        if (!report.ok()) {
          EXPECT_FALSE(report.status().message().empty()) << model << key;
        }
      }
    }
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

// Rows as the model has them, some of them too, get the method; what is turned
// is rounded to nearest.
TEST(GgufFamilyErrors, MethodsOfTensorsInAnotherForm) {
  const FamilyFiles files;
  for (const std::string model :
       {"falcon_h1", "qwen3_moe", "deepseek_v3", "lfm2", "mamba2", "gpt_neox",
        "granitemoehybrid", "qwen3_5_moe_text", "gemma4_text",
        "deepseek_v32"}) {
    SCOPED_TRACE(model);
    QuantizeOptions options;
    options.type = "q4_0";
    options.method = QuantizeMethod::kGptq;
    options.calibration_sequences = {{1, 2, 3, 4, 5, 6, 7, 8}};
    const auto report = files.Try(Open(model, "config.json"), options);
    ASSERT_TRUE(report.ok()) << report.status();
    int used = 0;
    for (const QuantizedTensor& tensor : report->tensors) {
      const bool turns = tensor.gguf.find("_b.weight") != std::string::npos &&
                         tensor.gguf.find("attn_q_b") == std::string::npos;
      if (turns) {
        EXPECT_FALSE(tensor.method.used) << tensor.gguf;
      }
      used += tensor.method.used ? 1 : 0;
    }
    EXPECT_GE(used, 2);
  }
}

}  // namespace
}  // namespace inlay
