#include "core/model/arch/llama_style.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

std::string LayerPrefix(int layer) {
  return FormattedString("model.layers.%d.", layer);
}

DecoderSpec LlamaStyleDecoder(const DecoderConfig& config, NormKind norm) {
  DecoderSpec spec;
  spec.optional_prefix = "model.";
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.max_positions = config.max_positions;
  spec.embedding = "model.embed_tokens.weight";
  spec.final_norm = {norm, "model.norm", config.norm_epsilon};
  (config.tie_embeddings ? spec.tied_head : spec.head) = "lm_head";
  return spec;
}

int64_t UsablePositions(int64_t max_positions, const RopeSpec& rope) {
  if (rope.scaling != RopeScaling::kYarn &&
      rope.scaling != RopeScaling::kDynamic) {
    return max_positions;
  }
  const double reach = static_cast<double>(rope.original_max) * rope.factor;
  return std::max(max_positions,
                  static_cast<int64_t>(
                      std::min(reach, static_cast<double>(kMaxPositions))));
}

AttentionSpec LlamaStyleAttention(const DecoderConfig& config,
                                  const std::string& prefix, bool qkv_bias,
                                  bool output_bias) {
  const int64_t q_width = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.num_kv_heads} * config.head_dim;
  const int64_t hidden = config.hidden_size;
  const std::string name = prefix + "self_attn.";
  AttentionSpec spec;
  spec.num_heads = config.num_heads;
  spec.num_kv_heads = config.num_kv_heads;
  spec.head_dim = config.head_dim;
  spec.qkv = {{name + "q_proj", q_width, hidden, qkv_bias},
              {name + "k_proj", kv_width, hidden, qkv_bias},
              {name + "v_proj", kv_width, hidden, qkv_bias}};
  spec.output = {name + "o_proj", hidden, q_width, output_bias};
  spec.rope = 0;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  return spec;
}

void AddHeadNorms(const DecoderConfig& config, const std::string& prefix,
                  NormKind norm, AttentionSpec* attention) {
  attention->q_norm = {norm, prefix + "self_attn.q_norm", config.norm_epsilon};
  attention->k_norm = {norm, prefix + "self_attn.k_norm", config.norm_epsilon};
}

MlpSpec LlamaStyleMlp(const DecoderConfig& config, const std::string& prefix,
                      bool bias) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = config.intermediate_size;
  const std::string name = prefix + "mlp.";
  MlpSpec spec;
  spec.width = width;
  spec.activation = config.activation;
  spec.gated = true;
  spec.input = {{name + "gate_proj", width, hidden, bias},
                {name + "up_proj", width, hidden, bias}};
  spec.output = {name + "down_proj", hidden, width, bias};
  return spec;
}

MlpSpec LlamaStylePlainMlp(const DecoderConfig& config,
                           const std::string& prefix, bool bias) {
  MlpSpec spec = LlamaStyleMlp(config, prefix, bias);
  spec.gated = false;
  spec.input.erase(spec.input.begin());
  return spec;
}

LayerSpec LlamaStyleLayer(const DecoderConfig& config,
                          const std::string& prefix, NormKind norm,
                          PartSpec attention, PartSpec mlp) {
  BlockSpec first;
  first.pre_norm = {norm, prefix + "input_layernorm", config.norm_epsilon};
  first.part = std::move(attention);
  BlockSpec second;
  second.pre_norm = {norm, prefix + "post_attention_layernorm",
                     config.norm_epsilon};
  second.part = std::move(mlp);
  LayerSpec layer;
  layer.blocks.push_back(std::move(first));
  layer.blocks.push_back(std::move(second));
  return layer;
}

LayerSpec PostNormLayer(const DecoderConfig& config, const std::string& prefix,
                        NormKind norm, AttentionSpec attention, PartSpec mlp) {
  LayerSpec layer;
  layer.blocks.resize(2);
  layer.blocks[0].post_norm = {norm, prefix + "post_attention_layernorm",
                               config.norm_epsilon};
  layer.blocks[0].part = std::move(attention);
  layer.blocks[1].post_norm = {norm, prefix + "post_feedforward_layernorm",
                               config.norm_epsilon};
  layer.blocks[1].part = std::move(mlp);
  return layer;
}

absl::StatusOr<Json> WithLlama3Rope(const Json& json, double factor) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (JsonFind(json, key) != nullptr) return json;
  }
  if (json.contains("rope_scaling")) {
    return absl::UnimplementedError(
        "config.json: rope_scaling is null; supported here is an object, "
        "{\"rope_type\": \"default\"} for none");
  }
  Json config = json;
  config["rope_parameters"] = {{"rope_type", "llama3"},
                               {"factor", factor},
                               {"original_max_position_embeddings", 8192},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}};
  return config;
}

absl::StatusOr<float> ReadClip(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> clip,
      ReadOptionalNumber(json, "clip_qkv", std::nullopt, 1e-6, 1e9));
  return static_cast<float>(clip.value_or(0.0));
}

absl::StatusOr<DecoderSpec> LlamaStyleSpec(const Json& json,
                                           const DecoderConfig& config,
                                           const LlamaVariant& variant) {
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", variant.biases));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", variant.biases));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, variant.rope));
  float clip = 0.0f;
  if (variant.clips) {
    INLAY_ASSIGN_OR_RETURN(clip, ReadClip(json));
  }
  DecoderSpec spec = LlamaStyleDecoder(config, variant.norm);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention =
        LlamaStyleAttention(config, prefix, attention_bias,
                            attention_bias && variant.may_bias_output);
    attention.rope_style = variant.rope_style;
    attention.clip = clip;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, variant.norm, std::move(attention),
                        variant.make_mlp(config, prefix, mlp_bias)));
  }
  return spec;
}

absl::Status ExpectSilu(const Json& config, std::string_view key) {
  INLAY_ASSIGN_OR_RETURN(const Activation activation,
                         ReadActivation(config, key, "silu"));
  if (activation == Activation::kSilu) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is %s; the convolutions of this network have \"silu\" "
      "here",
      key, ShownJson(config[std::string(key)])));
}

absl::StatusOr<std::vector<int>> QwenWindows(const Json& config,
                                             int num_layers) {
  INLAY_ASSIGN_OR_RETURN(const bool use,
                         JsonBool(config, "use_sliding_window", false));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t first,
      JsonInt(config, "max_window_layers", 28, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadSlidingLayers(config, num_layers));
  std::vector<int> windows(static_cast<size_t>(num_layers), 0);
  // Newer files write a window of 0 where it is not used.
  if (!use) return windows;
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(config, 4096));
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool slides =
        sliding.empty() ? i >= static_cast<size_t>(first) : sliding[i];
    if (slides) windows[i] = window;
  }
  return windows;
}

}  // namespace inlay
