#include "core/formats/gguf_config.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/gguf_arch_keys.h"
#include "core/formats/gguf_baichuan.h"
#include "core/formats/gguf_cohere_moe.h"
#include "core/formats/gguf_deci.h"
#include "core/formats/gguf_deepseek4.h"
#include "core/formats/gguf_deepseek_ocr.h"
#include "core/formats/gguf_encoder.h"
#include "core/formats/gguf_experts.h"
#include "core/formats/gguf_gemma.h"
#include "core/formats/gguf_gemma3n.h"
#include "core/formats/gguf_gpt.h"
#include "core/formats/gguf_granite.h"
#include "core/formats/gguf_grove.h"
#include "core/formats/gguf_laguna.h"
#include "core/formats/gguf_latent.h"
#include "core/formats/gguf_linear.h"
#include "core/formats/gguf_llama4.h"
#include "core/formats/gguf_minicpm.h"
#include "core/formats/gguf_minimax.h"
#include "core/formats/gguf_muse.h"
#include "core/formats/gguf_openelm.h"
#include "core/formats/gguf_rotary.h"
#include "core/formats/gguf_rwkv.h"
#include "core/formats/gguf_selective.h"
#include "core/formats/gguf_sizes.h"
#include "core/formats/gguf_smallthinker.h"
#include "core/formats/gguf_step.h"
#include "core/formats/gguf_windows.h"
#include "core/formats/gguf_xielu.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status ReadGpt2(const GgufArchKeys& keys, const GgufSizes& sizes,
                      Json* config) {
  (*config)["n_layer"] = sizes.layers;
  (*config)["n_embd"] = sizes.hidden;
  (*config)["n_positions"] = sizes.context;
  (*config)["n_head"] = sizes.heads;
  (*config)["n_inner"] = sizes.inner;
  return keys.CopyNumber("attention.layer_norm_epsilon", "layer_norm_epsilon",
                         config);
}

// Files say nothing of what published code does beyond its length; those of
// today's converter have the norms' epsilon under LayerNorms' key.
absl::Status ReadQwen(const GgufArchKeys& keys, Json* config) {
  (*config)["use_dynamic_ntk"] = false;
  (*config)["use_logn_attn"] = false;
  return keys.CopyNumber("attention.layer_norm_epsilon", "layer_norm_epsilon",
                         config);
}

absl::Status SetSizes(const GgufArchKeys& keys, const GgufSizes& sizes,
                      Json* config) {
  (*config)["num_hidden_layers"] = sizes.layers;
  (*config)["hidden_size"] = sizes.hidden;
  (*config)["max_position_embeddings"] = sizes.context;
  (*config)["num_attention_heads"] = sizes.heads;
  (*config)["num_key_value_heads"] = sizes.kv_heads;
  (*config)["intermediate_size"] = sizes.inner;
  (*config)["head_dim"] = sizes.head_dim;
  return keys.CopyNumber("attention.layer_norm_rms_epsilon", "rms_norm_eps",
                         config);
}

absl::StatusOr<std::optional<int64_t>> Window(const GgufArchKeys& keys) {
  INLAY_ASSIGN_OR_RETURN(const auto window,
                         keys.Int("attention.sliding_window", 0, kMaxGgufSize));
  if (window.value_or(0) == 0) return std::nullopt;
  return window;
}

absl::Status ReadNeox(const GgufArchKeys& keys, const GgufFiles& files,
                      Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto parallel,
                         keys.Bool("use_parallel_residual"));
  (*config)["use_parallel_residual"] = parallel.value_or(true);
  (*config)["attention_bias"] =
      files.FindTensor("blk.0.attn_qkv.bias") != nullptr;
  return keys.CopyNumber("attention.layer_norm_epsilon", "layer_norm_eps",
                         config);
}

// Those whose norms are LayerNorms.
absl::Status ReadLayerNorms(const GgufArchKeys& keys, Json* config) {
  const bool is_cohere = keys.arch() != "starcoder2";
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("attention.layer_norm_epsilon",
                      is_cohere ? "layer_norm_eps" : "norm_epsilon", config));
  return is_cohere ? keys.CopyNumber("logit_scale", "logit_scale", config)
                   : absl::OkStatus();
}

// Files have the tensors of one norm where parts are in parallel.
absl::Status ReadStableLm(const GgufFiles& files, const GgufArchKeys& keys,
                          Json* config) {
  const auto has = [&](std::string_view tensor) {
    return files.FindTensor(tensor) != nullptr;
  };
  (*config)["qk_layernorm"] = has("blk.0.attn_q_norm.weight");
  (*config)["use_parallel_residual"] = !has("blk.0.ffn_norm.weight");
  (*config)["use_qkv_bias"] = has("blk.0.attn_q.bias");
  return keys.CopyNumber("attention.layer_norm_epsilon", "layer_norm_eps",
                         config);
}

// Files of OLMo 3 say "olmo2" too, and have windows.
absl::Status ReadOlmo3(const GgufArchKeys& keys, const GgufSizes& sizes,
                       int64_t window, Json* config) {
  (*config)["architectures"] = {"Olmo3ForCausalLM"};
  (*config)["model_type"] = "olmo3";
  (*config)["sliding_window"] = window;
  return ReadGgufPattern(keys, sizes.layers, false, config);
}

absl::Status ReadLfm2(const GgufFiles& files, const GgufArchKeys& keys,
                      const GgufSizes& sizes, Json* config) {
  constexpr char kTaps[] = "shortconv.l_cache";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t taps,
      keys.Required(kTaps, keys.Int(kTaps, 1, kMaxGgufSize)));
  (*config)["conv_L_cache"] = taps;
  (*config)["block_auto_adjust_ff_dim"] = false;
  bool has_bias = false;
  Json types = Json::array();
  for (size_t i = 0; i < static_cast<size_t>(sizes.layers); ++i) {
    has_bias |= files.FindTensor(FormattedString("blk.%d.shortconv.conv.bias",
                                                 i)) != nullptr;
    const bool attends = sizes.attends.empty() || sizes.attends[i];
    types.push_back(attends ? "full_attention" : "conv");
  }
  (*config)["conv_bias"] = has_bias;
  (*config)["layer_types"] = std::move(types);
  return keys.CopyNumber("attention.layer_norm_rms_epsilon", "norm_eps",
                         config);
}

// Queries scaled by their position, from attention.temperature_length tokens on
// or from where yarn begins.
absl::Status ReadTemperature(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config) {
  // Without one config.json would mean the family's.
  Json& rope = (*config)["rope_scaling"];
  if (!rope.is_object()) rope = Json{{"rope_type", "default"}};
  INLAY_ASSIGN_OR_RETURN(const auto scale,
                         keys.Number("attention.temperature_scale"));
  if (scale.value_or(0.0) == 0.0) return absl::OkStatus();
  constexpr char kLength[] = "attention.temperature_length";
  constexpr char kOriginal[] = "original_max_position_embeddings";
  INLAY_ASSIGN_OR_RETURN(const auto length, keys.Int(kLength, 1, kMaxGgufSize));
  const int64_t original = rope.value(kOriginal, sizes.context);
  if (length.value_or(original) != original) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: that of yarn, %d",
                        keys.Name(kLength), *length, original));
  }
  rope[kOriginal] = original;
  rope["llama_4_scaling_beta"] = *scale;
  return absl::OkStatus();
}

// Files with yarn's multiplier keep magnitudes.
absl::Status ReadMinistral(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config) {
  INLAY_RETURN_IF_ERROR(ReadTemperature(keys, sizes, config));
  INLAY_ASSIGN_OR_RETURN(const auto magnitude,
                         keys.Number("rope.scaling.yarn_log_multiplier"));
  if (magnitude.value_or(0.0) != 0.0) {
    (*config)["rope_scaling"]["mscale"] = *magnitude;
    (*config)["rope_scaling"]["mscale_all_dim"] = *magnitude;
  }
  return absl::OkStatus();
}

absl::Status ReadFamily(const GgufFiles& files, const GgufArchKeys& keys,
                        const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto window, Window(keys));
  if (IsGgufBert(keys.arch())) return ReadGgufBert(files, keys, sizes, config);
  INLAY_ASSIGN_OR_RETURN(const auto causal, keys.Bool("attention.causal"));
  const bool is_embedder = keys.arch() == "gemma-embedding";
  if (is_embedder) {
    (*config)["use_bidirectional_attention"] = true;
  } else if (!causal.value_or(true) || keys.arch() == "llama-embed") {
    (*config)["is_causal"] = false;
  }
  if (keys.arch() == "gemma") return absl::OkStatus();
  if (keys.arch() == "gemma2" || keys.arch() == "gemma3" || is_embedder) {
    return ReadGgufGemma(keys, sizes, window, config);
  }
  if (keys.arch() == "phi3" || keys.arch() == "gpt-oss") {
    (*config)["sliding_window"] = window.has_value() ? Json(*window) : Json();
    return absl::OkStatus();
  }
  if (keys.arch() == "qwen3next" || keys.arch().starts_with("qwen35")) {
    return ReadGgufLinear(files, keys, sizes, config);
  }
  if (keys.arch() == "deepseek2-ocr") {
    return ReadGgufDeepseekOcr(keys, window, config);
  }
  if (keys.arch() == "deepseek32" || keys.arch() == "glm-dsa") {
    INLAY_RETURN_IF_ERROR(ReadGgufLatent(files, keys, sizes, config));
    return ReadGgufIndexer(keys, sizes, config);
  }
  if (keys.arch() == "mistral4") {
    INLAY_RETURN_IF_ERROR(ReadGgufLatent(files, keys, sizes, config));
    return ReadTemperature(keys, sizes, config);
  }
  if (keys.arch() == "deepseek2" || keys.arch() == "minicpm3" ||
      keys.arch() == "plm" || keys.arch() == "kimi-linear") {
    INLAY_RETURN_IF_ERROR(ReadGgufLatent(files, keys, sizes, config));
    return keys.arch() == "kimi-linear"
               ? ReadGgufKimi(files, keys, sizes, config)
               : absl::OkStatus();
  }
  if (keys.arch() == "gptneox") return ReadNeox(keys, files, config);
  if (IsGgufGpt(keys.arch())) return ReadGgufGpt(files, keys, sizes, config);
  if (keys.arch() == "stablelm") return ReadStableLm(files, keys, config);
  const bool is_jais = keys.arch() == "jais2";
  const bool is_nemotron = keys.arch() == "nemotron";
  if (keys.arch() == "phi2" || is_jais || is_nemotron) {
    INLAY_RETURN_IF_ERROR(
        keys.CopyNumber("attention.layer_norm_epsilon",
                        is_nemotron ? "norm_eps" : "layer_norm_eps", config));
  }
  if (keys.arch() == "olmo") {
    INLAY_ASSIGN_OR_RETURN(const auto clip, keys.Number("attention.clamp_kqv"));
    if (clip.value_or(0.0) > 0.0) (*config)["clip_qkv"] = *clip;
  }
  if (keys.arch().starts_with("nemotron_h")) {
    return ReadGgufNemotron(files, keys, sizes, config);
  }
  if (keys.arch() == "gemma3n") {
    return ReadGgufGemma3n(files, keys, sizes, config);
  }
  if (keys.arch() == "gemma4") {
    return ReadGgufGemma4(files, keys, sizes, config);
  }
  if (keys.arch() == "mimo2") return ReadGgufMimo(files, keys, sizes, config);
  if (keys.arch() == "laguna") {
    return ReadGgufLaguna(files, keys, sizes, config);
  }
  if (keys.arch() == "step35") return ReadGgufStep(files, keys, sizes, config);
  if (keys.arch() == "smallthinker") {
    return ReadGgufSmallThinker(keys, sizes, config);
  }
  if (keys.arch() == "mellum") {
    return ReadGgufMellum(files, keys, sizes, config);
  }
  if (keys.arch() == "grovemoe") return ReadGgufGrove(keys, sizes, config);
  if (keys.arch() == "arctic") {
    (*config)["moe_layer_frequency"] = 1;
    (*config)["parallel_attn_mlp_res"] = true;
    return absl::OkStatus();
  }
  if (keys.arch() == "openelm") {
    return ReadGgufOpenElm(files, keys, sizes, config);
  }
  if (keys.arch() == "deci") return ReadGgufDeci(files, keys, sizes, config);
  if (keys.arch() == "deepseek4") {
    return ReadGgufDeepseek4(keys, sizes, files.header(), config);
  }
  if (keys.arch() == "minimax-01") {
    return ReadGgufMiniMax01(keys, sizes, config);
  }
  if (keys.arch() == "minimax-m3") {
    return ReadGgufMiniMaxM3(keys, sizes, config);
  }
  if (keys.arch() == "muse-glimmer") return ReadGgufMuse(keys, sizes, config);
  if (keys.arch() == "cohere2moe") {
    return ReadGgufCohereMoe(files, keys, sizes, config);
  }
  if (keys.arch() == "jamba") return ReadGgufJamba(files, keys, sizes, config);
  if (keys.arch() == "falcon-h1") {
    return ReadGgufFalconH1(files, keys, sizes, config);
  }
  if (keys.arch() == "granitehybrid" || keys.arch() == "granitemoe") {
    INLAY_RETURN_IF_ERROR(ReadGgufGranite(keys, sizes, config));
    return ReadGgufGraniteHybrid(files, keys, sizes, config);
  }
  if (keys.arch().starts_with("lfm2")) {
    return ReadLfm2(files, keys, sizes, config);
  }
  if (keys.arch() == "olmo2" && window.has_value()) {
    INLAY_RETURN_IF_ERROR(ReadOlmo3(keys, sizes, *window, config));
  }
  if (keys.arch() == "llama4") {
    INLAY_RETURN_IF_ERROR(ReadGgufLlama4(keys, sizes, config));
  }
  if (keys.arch() == "granite" || keys.arch() == "granite_swa") {
    INLAY_RETURN_IF_ERROR(ReadGgufGranite(keys, sizes, config));
  }
  if (keys.arch() == "granite_swa") {
    INLAY_RETURN_IF_ERROR(ReadGgufGraniteSwa(keys, sizes, config));
  }
  if (keys.arch() == "baichuan") return ReadGgufBaichuan(keys, sizes, config);
  if (keys.arch() == "qwen") return ReadQwen(keys, config);
  if (keys.arch() == "minicpm") {
    INLAY_RETURN_IF_ERROR(ReadGgufMiniCpm(keys, sizes, config));
  }
  if (keys.arch() == "orion") {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber("attention.layer_norm_epsilon",
                                          "rms_norm_eps", config));
  }
  if (keys.arch() == "mistral3") {
    (*config)["sliding_window"] = window.has_value() ? Json(*window) : Json();
    return ReadMinistral(keys, sizes, config);
  }
  const bool is_starcoder = keys.arch() == "starcoder2";
  if (is_starcoder || keys.arch() == "cohere2" || keys.arch() == "command-r") {
    INLAY_RETURN_IF_ERROR(ReadLayerNorms(keys, config));
  }
  if (keys.arch() == "apertus") {
    INLAY_RETURN_IF_ERROR(ReadGgufXielu(files.header(), sizes.layers, config));
    // Without a scaling config.json would mean the family's.
    Json& scaling = (*config)["rope_scaling"];
    if (!scaling.is_object()) scaling = Json{{"rope_type", "default"}};
  }
  if (keys.arch() == "afmoe") {  // of both llama.cpp assumes as much
    (*config)["mup_enabled"] = true;
    (*config)["global_attn_every_n_layers"] = 4;
    (*config)["sliding_window"] = window.has_value() ? Json(*window) : Json();
  }
  if (keys.arch() == "phimoe") {
    (*config)["sliding_window"] = window.has_value() ? Json(*window) : Json();
    (*config)["lm_head_bias"] = files.FindTensor("output.bias") != nullptr;
  }
  // No file says where dots1 has windows.
  if (keys.arch() == "dots1") (*config)["sliding_window"] = Json();
  const bool is_exaone = keys.arch().starts_with("exaone");
  if (is_starcoder || keys.arch() == "cohere2" || is_exaone) {
    (*config)["sliding_window"] = window.has_value() ? Json(*window) : Json();
    // K-EXAONE's files have one even where they do not say.
    if (keys.arch() == "exaone-moe") {
      (*config)["sliding_window"] = window.value_or(128);
    }
    INLAY_RETURN_IF_ERROR(ReadGgufPattern(keys, sizes.layers, false, config));
  }
  if (keys.arch() == "llama" && window.has_value()) {
    (*config)["architectures"] = {"MistralForCausalLM"};
    (*config)["model_type"] = "mistral";
    (*config)["sliding_window"] = *window;
    return absl::OkStatus();
  }
  const auto has = [&](std::string_view tensor) {
    return files.FindTensor(tensor) != nullptr;
  };
  const bool has_query_bias =
      has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  const bool has_output_bias = has("blk.0.attn_output.bias");
  const bool is_apart = keys.arch().starts_with("glm4") ||
                        keys.arch() == "seed_oss" || keys.arch() == "chatglm";
  (*config)["attention_bias"] = is_apart ? has_query_bias : has_output_bias;
  if (keys.arch() == "seed_oss") {
    (*config)["attention_out_bias"] = has_output_bias;
  }
  if (keys.arch() == "glm4moe" || keys.arch() == "minimax-m2" ||
      keys.arch() == "command-r" || keys.arch().starts_with("hunyuan")) {
    (*config)["use_qk_norm"] = has("blk.0.attn_q_norm.weight");
  }
  if (is_starcoder || keys.arch().starts_with("ernie4_5")) {
    (*config)["use_bias"] = has_query_bias;
  }
  const bool is_plain = keys.arch() == "arcee" || keys.arch() == "apertus" ||
                        is_nemotron || is_jais;
  (*config)["mlp_bias"] =
      has(is_plain ? "blk.0.ffn_up.bias" : "blk.0.ffn_gate.bias");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufConfig> ReadGgufConfig(const GgufFiles& files,
                                          const GgufArch& arch) {
  const GgufArchKeys keys(files.header(), arch.name);
  INLAY_ASSIGN_OR_RETURN(const GgufSizes sizes, ReadGgufSizes(files, keys));
  Json config = Json{{"architectures", {arch.architecture}},
                     {"model_type", arch.model_type},
                     {"vocab_size", sizes.vocab}};
  config["tie_word_embeddings"] = files.FindTensor("output.weight") == nullptr;
  if (arch.name == "gpt2") {
    INLAY_RETURN_IF_ERROR(ReadGpt2(keys, sizes, &config));
  } else if (arch.name == "mamba2") {
    INLAY_RETURN_IF_ERROR(ReadGgufMamba2(files, keys, sizes, &config));
  } else if (arch.name == "mamba") {
    INLAY_RETURN_IF_ERROR(ReadGgufMamba(files, keys, sizes, &config));
  } else if (arch.name == "rwkv7") {
    INLAY_RETURN_IF_ERROR(ReadGgufRwkv7(keys, sizes, &config));
  } else {
    INLAY_RETURN_IF_ERROR(SetSizes(keys, sizes, &config));
    // Gemma 4 has two (gguf_gemma.h).
    if (arch.name != "gemma4") {
      INLAY_RETURN_IF_ERROR(
          ReadGgufRotary(files, keys, sizes.head_dim, &config));
    }
    INLAY_RETURN_IF_ERROR(ReadFamily(files, keys, sizes, &config));
  }
  INLAY_RETURN_IF_ERROR(ReadGgufExperts(files, keys, sizes, &config));
  // Deci's layers have other counts of one size.
  const int64_t head_dim = arch.name == "deci" ? sizes.head_dim : 0;
  return GgufConfig{
      std::move(config), {sizes.heads, sizes.kv_heads, head_dim}, sizes.layers};
}

}  // namespace inlay
