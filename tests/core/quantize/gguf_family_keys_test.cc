// Keys of GGUF files that QuantizeModel writes of families, as llama.cpp's
// converter sets them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/formats/gguf_files.h"
#include "core/formats/gguf_metadata.h"
#include "core/quantize/quantize.h"
#include "tests/core/model/golden_models.h"
#include "tests/core/quantize/family_files.h"

namespace inlay {
namespace {

template <typename T>
Json Numbers(const GgufValue& value) {
  Json list = Json::array();
  for (size_t i = 0; i < value.count; ++i) {
    T number;
    std::memcpy(&number, value.data.data() + i * sizeof(T), sizeof(T));
    list.push_back(number);
  }
  return value.is_array ? list : list[0];
}

Json JsonOf(const GgufValue& value) {
  switch (value.type) {
    case GgufType::kU32:
      return Numbers<uint32_t>(value);
    case GgufType::kI32:
      return Numbers<int32_t>(value);
    case GgufType::kF32:
      return Numbers<float>(value);
    case GgufType::kBool:
      return Numbers<bool>(value);
    default:
      return Json();
  }
}

struct Keys {
  const char* model;
  const char* arch;
  const char* keys;
  const char* changes = "{}";  // of the golden model's config.json
};
constexpr Keys kKeys[] = {
    {"bert_labels", "bert", R"({"block_count": 1, "context_length": 80,
        "attention.head_count": 2, "attention.causal": false})"},
    {"roberta_labels", "bert", R"({"context_length": 80,
        "attention.causal": false})"},
    {"distilbert_labels", "bert", R"({"block_count": 2, "context_length": 80,
        "embedding_length": 32, "attention.head_count": 2,
        "feed_forward_length": 48, "attention.causal": false})",
     R"({"architectures": ["DistilBertModel"]})"},
    {"nomic_bert", "nomic-bert", R"({"block_count": 2, "context_length": 80,
        "embedding_length": 32, "attention.head_count": 2,
        "feed_forward_length": 48, "rope.freq_base": 1000.0,
        "attention.layer_norm_epsilon": 1e-12, "attention.causal": false})"},
    {"nomic_bert", "nomic-bert", R"({"context_length": 40})",
     R"({"rotary_scaling_factor": 2, "max_trained_positions": 40})"},
    {"nomic_bert", "nomic-bert", R"({"context_length": 80})",
     R"({"max_trained_positions": 40})"},
    {"nomic_bert_moe", "nomic-bert-moe", R"({"block_count": 3,
        "context_length": 80, "embedding_length": 32, "attention.head_count": 2,
        "feed_forward_length": 16, "rope.freq_base": 10000.0,
        "attention.layer_norm_epsilon": 1e-5, "attention.causal": false,
        "moe_every_n_layers": 2, "expert_count": 4, "expert_used_count": 2})",
     R"({"experts_bias": false})"},
    {"jina_embeddings_v3", "jina-bert-v3", R"({"block_count": 2,
        "context_length": 80, "embedding_length": 32, "attention.head_count": 2,
        "feed_forward_length": 48, "rope.freq_base": 20000.0,
        "attention.layer_norm_epsilon": 1e-12, "attention.causal": false})"},
    {"jina_embeddings_v3", "jina-bert-v3",
     R"({"attention.layer_norm_epsilon": 1e-5})",
     R"({"layer_norm_eps": null})"},
    {"eurobert", "eurobert", R"({"block_count": 2, "context_length": 80,
        "attention.head_count": 4, "attention.head_count_kv": 2,
        "rope.freq_base": 250000.0, "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.causal": false})"},
    {"modernbert_labels", "modern-bert", R"({"block_count": 4,
        "context_length": 96, "attention.head_count": 2,
        "feed_forward_length": 32, "attention.layer_norm_epsilon": 1e-5,
        "attention.sliding_window": 16, "attention.sliding_window_pattern": 3,
        "rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0,
        "vocab_size": 64, "attention.causal": false})"},
    {"modernbert_labels", "modern-bert", R"({"rope.freq_base_swa": 160000.0})",
     R"({"local_rope_theta": null})"},
    {"gemma3_embedding", "gemma-embedding", R"({"context_length": 96,
        "attention.sliding_window": 24, "attention.key_length": 16,
        "attention.head_count_kv": 1, "rope.freq_base": 1000000.0,
        "attention.causal": false})"},
    {"mixtral", "llama", R"({"block_count": 2, "expert_count": 4,
        "expert_used_count": 2, "feed_forward_length": 64,
        "rope.dimension_count": 16})"},
    {"qwen3_moe", "qwen3moe", R"({"block_count": 2, "context_length": 512,
        "embedding_length": 64, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.head_count_kv": 2,
        "attention.key_length": 32, "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": 0.001, "rope.freq_base": 10000.0,
        "expert_count": 8, "expert_used_count": 2,
        "expert_feed_forward_length": 32})"},
    {"gpt_oss", "gpt-oss", R"({"attention.sliding_window": 32,
        "expert_feed_forward_length": 32, "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 64})"},
    {"glm4_moe", "glm4moe", R"({"rope.dimension_count": 16, "expert_count": 8,
        "expert_feed_forward_length": 32, "expert_shared_count": 1,
        "leading_dense_block_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 1.0, "expert_weights_norm": true})"},
    {"deepseek_v2", "deepseek2", R"({"expert_gating_func": 1,
        "expert_group_count": 4, "expert_group_used_count": 2,
        "expert_weights_scale": 4.0, "vocab_size": 320})"},
    {"deepseek_v3", "deepseek2", R"({"attention.head_count": 4,
        "attention.head_count_kv": 1, "leading_dense_block_count": 1,
        "attention.q_lora_rank": 32, "attention.kv_lora_rank": 32,
        "attention.key_length": 48, "attention.value_length": 32,
        "attention.key_length_mla": 48, "attention.value_length_mla": 32,
        "expert_feed_forward_length": 32, "expert_count": 8,
        "expert_shared_count": 2, "expert_weights_scale": 2.5,
        "expert_weights_norm": true, "expert_gating_func": 2,
        "expert_group_count": 2, "expert_group_used_count": 1,
        "rope.dimension_count": 16, "rope.scaling.factor": 4.0,
        "rope.scaling.yarn_log_multiplier": 0.1})"},
    {"glm_moe_dsa", "glm-dsa", R"({"attention.indexer.head_count": 16,
        "attention.indexer.key_length": 32, "attention.indexer.top_k": 16,
        "attention.indexer.types": [true, false, true],
        "leading_dense_block_count": 2})"},
    {"qwen3_5_moe_text", "qwen35moe", R"({"ssm.conv_kernel": 4,
        "ssm.state_size": 16, "ssm.group_count": 1, "ssm.time_step_rank": 2,
        "ssm.inner_size": 64, "full_attention_interval": 2,
        "attention.recurrent_layers": [true, false],
        "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0],
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 32})"},
    {"gemma3n_text", "gemma3n", R"({"attention.shared_kv_layers": 1,
        "embedding_length_per_layer_input": 8, "altup.num_inputs": 3,
        "altup.active_idx": 0, "attention.sliding_window": 32,
        "attention.sliding_window_pattern": [true, false, true],
        "attention.key_length": 16, "attention.value_length": 16,
        "attention.head_count_kv": 1, "feed_forward_length": [32, 32, 32],
        "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
        "final_logit_softcapping": 30.0})"},
    {"gemma4_text", "gemma4", R"({"attention.shared_kv_layers": 2,
        "embedding_length_per_layer_input": 32,
        "attention.sliding_window_pattern": [true, false, true, false],
        "attention.key_length": 64, "attention.value_length": 64,
        "attention.key_length_swa": 32, "attention.value_length_swa": 32,
        "feed_forward_length": [32, 32, 64, 64], "rope.dimension_count": 64,
        "rope.dimension_count_swa": 32, "rope.freq_base": 100000.0,
        "rope.freq_base_swa": 10000.0, "final_logit_softcapping": 5.0})"},
    {"granitemoehybrid", "granitehybrid", R"({"ssm.conv_kernel": 4,
        "ssm.state_size": 16, "ssm.group_count": 1, "ssm.inner_size": 128,
        "ssm.time_step_rank": 4, "attention.head_count_kv": [0, 1],
        "expert_shared_feed_forward_length": 64, "attention.scale": 0.3,
        "embedding_scale": 6.0, "residual_scale": 0.5, "logit_scale": 3.0,
        "rope.scaling.finetuned": false})"},
    {"lfm2", "lfm2", R"({"shortconv.l_cache": 3, "feed_forward_length": 64,
        "attention.head_count_kv": [0, 1, 0], "vocab_size": 320,
        "attention.layer_norm_rms_epsilon": 0.001})"},
    {"falcon_h1", "falcon-h1", R"({"ssm.inner_size": 64, "ssm.state_size": 32,
        "ssm.time_step_rank": 4, "ssm.group_count": 1, "ssm.conv_kernel": 4,
        "feed_forward_length": 32, "attention.head_count_kv": 1})"},
    {"mamba2", "mamba2", R"({"feed_forward_length": 0,
        "attention.head_count": 0, "context_length": 1048576,
        "ssm.inner_size": 128, "ssm.state_size": 32, "ssm.group_count": 2,
        "ssm.time_step_rank": 4})"},
    {"mamba", "mamba", R"({"feed_forward_length": 0,
        "attention.head_count": 0, "context_length": 1048576,
        "attention.layer_norm_rms_epsilon": 0.001, "ssm.conv_kernel": 4,
        "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.time_step_rank": 2,
        "ssm.dt_b_c_rms": false})"},
    {"jamba", "jamba", R"({"feed_forward_length": 16,
        "attention.head_count": 2, "attention.head_count_kv": [0, 1],
        "attention.layer_norm_rms_epsilon": 0.001, "ssm.conv_kernel": 4,
        "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.time_step_rank": 2,
        "expert_count": 4, "expert_used_count": 2})"},
    {"nemotron_h", "nemotron_h_moe", R"({"attention.key_length": 32,
        "attention.head_count_kv": [0, 0, 1, 0],
        "attention.layer_norm_epsilon": 0.001, "expert_shared_count": 1,
        "expert_shared_feed_forward_length": 64,
        "expert_weights_norm": true, "expert_weights_scale": 2.5})"},
    {"nemotron_h_latent", "nemotron_h_moe", R"({"moe_latent_size": 16,
        "expert_feed_forward_length": 24, "feed_forward_length": [0, 24],
        "expert_shared_feed_forward_length": 16})"},
    {"kimi_linear", "kimi-linear", R"({"kda.head_dim": 32, "ssm.conv_kernel": 4,
        "attention.head_count_kv": [0, 0, 0, 1], "expert_shared_count": 1,
        "attention.kv_lora_rank": 32, "rope.dimension_count": 16,
        "leading_dense_block_count": 1})"},
    {"qwen3_next", "qwen3next", R"({"ssm.conv_kernel": 4, "ssm.state_size": 32,
        "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128,
        "full_attention_interval": 4, "rope.dimension_count": 8,
        "expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 64})"},
    {"minimax_m2", "minimax-m2", R"({"expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": 32, "expert_gating_func": 2,
        "rope.dimension_count": 16, "attention.key_length": 32})"},
    {"deepseek_v32", "deepseek32", R"({"attention.indexer.head_count": 16,
        "attention.indexer.key_length": 32, "attention.indexer.top_k": 16,
        "attention.kv_lora_rank": 32, "expert_shared_count": 2,
        "expert_gating_func": 2, "leading_dense_block_count": 1})"},
    {"gpt_neox", "gptneox", R"({"attention.head_count": 2,
        "feed_forward_length": 96, "use_parallel_residual": true,
        "attention.layer_norm_epsilon": 0.001, "rope.dimension_count": 8})"},
    {"llama4_text", "llama4", R"({"expert_count": 4, "expert_used_count": 1,
        "expert_feed_forward_length": 32, "feed_forward_length": 64,
        "interleave_moe_layer_step": 2})",
     kPublishedLlama4},
    {"glm4_moe_lite", "deepseek2", R"({"leading_dense_block_count": 1,
        "expert_count": 4, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_norm": true, "attention.key_length_mla": 32})"},
    {"minicpm3", "minicpm3", R"({"attention.head_count_kv": 1,
        "attention.q_lora_rank": 32, "attention.kv_lora_rank": 32,
        "attention.key_length": 32, "rope.dimension_count": 16,
        "rope.scaling.original_context_length": 64})"},
    {"lfm2_moe", "lfm2moe", R"({"attention.head_count_kv": [0, 1, 0],
        "shortconv.l_cache": 3, "leading_dense_block_count": 2,
        "expert_count": 4, "expert_used_count": 2, "expert_gating_func": 2,
        "expert_feed_forward_length": 32, "vocab_size": 320})"},
    {"olmoe", "olmoe", R"({"expert_count": 4, "expert_used_count": 2,
        "feed_forward_length": 32, "attention.head_count_kv": 1})"},
    {"seed_oss", "seed_oss", R"({"attention.key_length": 16,
        "feed_forward_length": 64, "rope.freq_base": 10000000.0})"},
    {"ernie4_5_moe", "ernie4_5-moe", R"({"expert_count": 4,
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_shared_count": 2, "expert_shared_feed_forward_length": 64,
        "leading_dense_block_count": 1, "interleave_moe_layer_step": 1})"},
    {"ministral3", "mistral3", R"({"attention.key_length": 16,
        "attention.temperature_scale": 0.5, "rope.scaling.factor": 4.0,
        "rope.scaling.yarn_log_multiplier": 1.0,
        "rope.scaling.original_context_length": 32})"},
    {"cohere", "command-r", R"({"logit_scale": 0.25,
        "attention.layer_norm_epsilon": 0.001})"},
    {"phi", "phi2", R"({"rope.dimension_count": 8,
        "attention.layer_norm_epsilon": 0.001})"},
    {"nemotron", "nemotron", R"({"rope.dimension_count": 8,
        "attention.layer_norm_epsilon": 0.001})"},
    {"stablelm", "stablelm", R"({"rope.dimension_count": 8,
        "attention.layer_norm_epsilon": 0.001,
        "use_parallel_residual": false})"},
    {"dots1", "dots1", R"({"leading_dense_block_count": 0,
        "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 2.5, "expert_weights_norm": true})"},
    {"granitemoe", "granitemoe", R"({"expert_count": 4, "expert_used_count": 2,
        "feed_forward_length": 32, "attention.scale": 0.3})"},
    {"falcon", "falcon", R"({"block_count": 2, "context_length": 512,
        "embedding_length": 32, "feed_forward_length": 64,
        "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.layer_norm_epsilon": 0.00001})"},
    {"falcon_40b", "falcon", R"({"attention.head_count_kv": 2})"},
    {"bloom", "bloom", R"({"block_count": 1, "context_length": 512,
        "embedding_length": 32, "feed_forward_length": 128,
        "attention.head_count": 2, "attention.head_count_kv": 2,
        "attention.layer_norm_epsilon": 0.00001})"},
    {"mpt", "mpt", R"({"block_count": 1, "context_length": 512,
        "embedding_length": 32, "feed_forward_length": 128,
        "attention.head_count": 2, "attention.max_alibi_bias": 8.0,
        "attention.layer_norm_epsilon": 0.00001})"},
    {"gpt_bigcode", "starcoder", R"({"block_count": 2, "context_length": 176,
        "embedding_length": 32, "feed_forward_length": 64,
        "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.layer_norm_epsilon": 0.00001})"},
    {"gpt_bigcode_mha", "starcoder", R"({"attention.head_count_kv": 2})"},
    {"exaone_moe", "exaone-moe", R"({"attention.sliding_window": 32,
        "attention.sliding_window_pattern": [true, false],
        "vocab_size": 320, "leading_dense_block_count": 1,
        "expert_count": 4, "expert_used_count": 2, "expert_shared_count": 1,
        "expert_feed_forward_length": 32,
        "expert_shared_feed_forward_length": 32, "expert_weights_scale": 2.5,
        "expert_weights_norm": true, "expert_gating_func": 2})"},
    {"exaone", "exaone", R"({"block_count": 1, "context_length": 512,
        "attention.layer_norm_rms_epsilon": 0.001,
        "rope.freq_base": 1000000.0})"},
    {"hunyuan_v1_dense", "hunyuan-dense", R"({"attention.key_length": 16,
        "rope.freq_base": 26826957.95})"},
    {"hunyuan_v1_moe", "hunyuan-moe", R"({"expert_count": 4,
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_shared_count": 1, "expert_shared_feed_forward_length": 32})"},
    {"dbrx", "dbrx", R"({"block_count": 1, "context_length": 512,
        "embedding_length": 32, "feed_forward_length": 32,
        "attention.head_count": 2, "attention.head_count_kv": 1,
        "rope.freq_base": 500000.0, "attention.clamp_kqv": 1.5,
        "expert_count": 4, "expert_used_count": 2,
        "attention.layer_norm_epsilon": 0.00001})"},
    {"apertus", "apertus", R"({"block_count": 2, "context_length": 512,
        "embedding_length": 32, "feed_forward_length": 64,
        "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 0.001,
        "rope.freq_base": 12000000.0})"},
    {"glm", "chatglm", R"({"attention.key_length": 16,
        "attention.head_count_kv": 1, "rope.dimension_count": 8,
        "attention.layer_norm_rms_epsilon": 0.001})"},
    {"cohere2_moe", "cohere2moe", R"({"feed_forward_length": 64,
        "attention.layer_norm_epsilon": 0.001, "logit_scale": 0.25,
        "attention.sliding_window": 32, "vocab_size": 128,
        "attention.sliding_window_pattern": [false, true],
        "leading_dense_block_count": 1, "expert_count": 3,
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "expert_shared_count": 1, "expert_shared_feed_forward_length": 32,
        "expert_weights_norm": true, "expert_gating_func": 2,
        "rope.dimension_count": 16, "rope.freq_base": 50000.0})"},
    {"mimo_v2_flash", "mimo2", R"({"attention.head_count_kv": [1, 2],
        "attention.key_length": 32, "attention.value_length": 16,
        "attention.layer_norm_rms_epsilon": 0.001,
        "attention.sliding_window": 32,
        "attention.sliding_window_pattern": [0, 1],
        "rope.dimension_count": 16, "rope.freq_base": 5000000.0,
        "rope.freq_base_swa": 10000.0, "expert_count": 3,
        "expert_used_count": 2, "expert_feed_forward_length": 32,
        "feed_forward_length": 32})"},
    {"mellum", "mellum", R"({"attention.sliding_window": 32,
        "attention.sliding_window_pattern": [true, false],
        "rope.freq_base": 500000.0, "rope.freq_base_swa": 10000.0,
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 128,
        "expert_feed_forward_length": 16})"},
    {"laguna", "laguna", R"({"attention.head_count": [2, 4],
        "attention.head_count_kv": 1, "attention.key_length": 16,
        "attention.sliding_window": 32, "vocab_size": 128,
        "attention.sliding_window_pattern": 4, "rope.freq_base": 500000.0,
        "rope.freq_base_swa": 10000.0, "rope.dimension_count": 8,
        "rope.dimension_count_swa": 16, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0, "rope.scaling.yarn_attn_factor": 1.0,
        "rope.scaling.yarn_beta_fast": 64.0,
        "rope.scaling.original_context_length": 128, "expert_count": 3,
        "expert_used_count": 2, "expert_feed_forward_length": 16,
        "expert_shared_feed_forward_length": 24, "feed_forward_length": 32,
        "leading_dense_block_count": 1, "expert_weights_scale": 2.5,
        "expert_weights_norm": true, "expert_gating_func": 2})"},
    {"hy_v3", "hy_v3", R"({"expert_gating_func": 2,
        "expert_weights_norm": true, "expert_count": 4,
        "expert_feed_forward_length": 16,
        "expert_shared_feed_forward_length": 16})"},
    {"solar_open", "glm4moe", R"({"leading_dense_block_count": 0,
        "expert_count": 4, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_weights_norm": true, "expert_weights_scale": 1.0,
        "rope.dimension_count": 16, "rope.freq_base": 1000000.0})"},
    {"sarvam_moe", "bailingmoe2", R"({"leading_dense_block_count": 0,
        "expert_count": 3, "expert_shared_count": 1, "expert_gating_func": 2,
        "expert_feed_forward_length": 16,
        "expert_shared_feed_forward_length": 16, "expert_weights_norm": true,
        "expert_weights_scale": 2.5, "rope.dimension_count": 16,
        "rope.freq_base": 8000000.0, "expert_group_count": 1})"},
    {"iquestcoder", "llama", R"({"attention.key_length": 16,
        "attention.head_count_kv": 1, "rope.freq_base": 500000.0})"},
    {"internlm3", "llama", R"({"context_length": 512,
        "attention.head_count_kv": 1, "rope.dimension_count": 16,
        "rope.freq_base": 50000000.0})"},
    {"youtu", "deepseek2", R"({"leading_dense_block_count": 1,
        "expert_shared_count": 0, "expert_feed_forward_length": 64,
        "feed_forward_length": 64, "attention.kv_lora_rank": 32,
        "vocab_size": 128})"},
    {"afmoe", "afmoe", R"({"expert_count": 4, "expert_used_count": 2,
        "expert_feed_forward_length": 16, "feed_forward_length": 32,
        "expert_shared_count": 1, "leading_dense_block_count": 1,
        "expert_weights_scale": 2.826, "expert_weights_norm": true,
        "expert_gating_func": 2, "attention.sliding_window": 32,
        "attention.key_length": 16})",
     R"({"layer_types": null})"},
    {"phimoe", "phimoe", R"({"expert_count": 4, "expert_used_count": 2,
        "feed_forward_length": 32, "attention.layer_norm_rms_epsilon": 0.001,
        "rope.scaling.attn_factor": 1.2,
        "rope.scaling.original_context_length": 256})",
     R"({"router_jitter_noise": 0.01})"},
    {"mistral4", "mistral4", R"({"expert_gating_func": 1,
        "expert_shared_count": 1, "attention.kv_lora_rank": 32,
        "attention.q_lora_rank": 32, "attention.key_length_mla": 32,
        "attention.value_length_mla": 32, "rope.dimension_count": 16,
        "leading_dense_block_count": 0, "expert_weights_norm": true,
        "rope.scaling.yarn_log_multiplier": 0.1,
        "attention.temperature_scale": 0.5, "vocab_size": 320})"},
    {"jais2", "jais2", R"({"attention.layer_norm_epsilon": 0.001})"},
    {"olmo", "olmo", R"({"attention.clamp_kqv": 1.5})"},
    {"mpt", "mpt", R"({"attention.clamp_kqv": 6.0})",
     R"({"attn_config": {"clip_qkv": 6}})"},
    {"olmo3", "olmo2", R"({"attention.sliding_window": 32,
        "attention.sliding_window_pattern": [true, true, false],
        "rope.freq_base": 500000.0, "rope.scaling.factor": 8.0,
        "rope.scaling.yarn_attn_factor": 1.2079})"},
    // What config.json leaves open.
    {"qwen3_5_text", "qwen35", R"({"rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0]})",
     R"({"head_dim": 256, "rope_parameters": null,
         "partial_rotary_factor": 0.25})"},
    {"glm4_moe", "glm4moe", R"({"expert_shared_count": 1})",
     R"({"n_shared_experts": null})"},
    {"deepseek_v2", "deepseek2", R"({"expert_shared_count": 2})",
     R"({"n_shared_experts": null})"},
    {"falcon_h1", "falcon-h1", R"({"ssm.inner_size": 192})",
     R"({"mamba_d_ssm": null, "mamba_expand": 3, "mamba_d_head": "auto"})"},
    {"granitemoehybrid", "granitehybrid", R"({"ssm.inner_size": 128})",
     R"({"mamba_d_head": "auto"})"},
    // Kimi's own names win, and are nobody else's.
    {"kimi_linear", "kimi-linear", R"({"context_length": 512,
        "expert_used_count": 2, "expert_shared_count": 1,
        "expert_group_count": 1, "expert_weights_norm": false})",
     R"({"max_position_embeddings": 64, "num_experts_per_tok": 3,
         "n_shared_experts": 2, "n_group": 2, "norm_topk_prob": true,
         "moe_renormalize": false})"},
    {"glm4_moe", "glm4moe", R"({"expert_weights_norm": true})",
     R"({"norm_topk_prob": null, "moe_renormalize": false})"}};

TEST(ConverterKeys, AreSet) {
  const FamilyFiles files;
  for (const Keys& row : kKeys) {
    SCOPED_TRACE(row.model);
    ModelFiles published = Open(row.model, "config.json");
    published.config.update(*ParseJson(row.changes, "changes"));
    const std::string path = files.Path("keys");
    ASSERT_TRUE(files.SetKeys(published, path).ok());
    const auto file = OpenGgufFiles(path, {});
    ASSERT_TRUE(file.ok()) << file.status();
    const Json wanted = *ParseJson(row.keys, row.model);
    for (const auto& [key, value] : wanted.items()) {
      SCOPED_TRACE(key);
      const GgufValue* found =
          file->header().Find(std::string(row.arch) + "." + key);
      ASSERT_NE(found, nullptr);
      if (value.is_string()) {
        EXPECT_EQ(
            **GgufString(file->header(), std::string(row.arch) + "." + key),
            value.get<std::string>());
        continue;
      }
      const Json got = JsonOf(*found);
      if (value.is_number_float()) {
        EXPECT_EQ(found->type, GgufType::kF32);
        EXPECT_EQ(got.get<float>(), value.get<float>());
      } else {
        EXPECT_EQ(got, value);
      }
    }
  }
}

}  // namespace
}  // namespace inlay
