#include "core/model/arch/gemma_style.h"

#include <cmath>
#include <utility>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr double kMaxScalar = 1e9;

}  // namespace

absl::StatusOr<DecoderConfig> ReadGemmaConfig(const Json& json,
                                              const DecoderDefaults& defaults) {
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      config.activation,
      ReadActivation(json, "hidden_activation", "gelu_pytorch_tanh"));
  return config;
}

absl::Status ExpectOneWay(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const bool bidirectional,
                         JsonBool(json, "use_bidirectional_attention", false));
  if (!bidirectional) return absl::OkStatus();
  return absl::UnimplementedError(
      "config.json: use_bidirectional_attention is true; only causal attention "
      "is supported in this family");
}

DecoderSpec GemmaStyleDecoder(const DecoderConfig& config) {
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRmsZeroCentred);
  spec.embedding_scale =
      static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  return spec;
}

LayerSpec SandwichLayer(const DecoderConfig& config, const std::string& prefix,
                        AttentionSpec attention, MlpSpec mlp) {
  LayerSpec layer = LlamaStyleLayer(config, prefix, NormKind::kRmsZeroCentred,
                                    std::move(attention), std::move(mlp));
  BlockSpec& first = layer.blocks[0];
  BlockSpec& second = layer.blocks[1];
  first.post_norm = first.pre_norm;
  first.post_norm.name = prefix + "post_attention_layernorm";
  second.post_norm = second.pre_norm;
  second.pre_norm.name = prefix + "pre_feedforward_layernorm";
  second.post_norm.name = prefix + "post_feedforward_layernorm";
  return layer;
}

absl::StatusOr<GemmaAttention> ReadGemmaAttention(
    const Json& json, int num_layers, const GemmaAttentionDefaults& defaults) {
  GemmaAttention out;
  INLAY_ASSIGN_OR_RETURN(
      const double scalar,
      JsonNumber(json, "query_pre_attn_scalar", 256.0, 1e-6, kMaxScalar));
  out.scale = static_cast<float>(1.0 / std::sqrt(scalar));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> attention_softcap,
      ReadOptionalNumber(json, "attn_logit_softcapping",
                         defaults.attention_softcap, 1e-6, kMaxScalar));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> final_softcap,
      ReadOptionalNumber(json, "final_logit_softcapping",
                         defaults.final_softcap, 1e-6, kMaxScalar));
  out.attention_softcap = static_cast<float>(attention_softcap.value_or(0.0));
  out.final_softcap = static_cast<float>(final_softcap.value_or(0.0));
  INLAY_ASSIGN_OR_RETURN(out.window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(out.bias, JsonBool(json, "attention_bias", false));

  INLAY_ASSIGN_OR_RETURN(
      out.sliding, ReadSlidingPattern(json, num_layers, defaults.pattern));
  return out;
}

absl::StatusOr<std::vector<int>> ReadKvSources(const Json& json,
                                               const std::vector<bool>& sliding,
                                               int64_t fallback) {
  const auto num_layers = static_cast<int>(sliding.size());
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      JsonInt(json, "num_kv_shared_layers", fallback, 0, kMaxLayers));
  if (shared >= num_layers) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: num_kv_shared_layers is %d with num_hidden_layers %d; it "
        "must be from 0 to %d",
        shared, num_layers, num_layers - 1));
  }
  const int own = num_layers - static_cast<int>(shared);
  std::vector<int> sources(sliding.size(), -1);
  for (int i = own; i < num_layers; ++i) {
    int& source = sources[static_cast<size_t>(i)];
    for (int j = 0; j < own; ++j) {
      if (sliding[static_cast<size_t>(j)] == sliding[static_cast<size_t>(i)]) {
        source = j;
      }
    }
    if (source < 0) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: num_kv_shared_layers is %d, but no layer before layer "
          "%d is of its type and has keys and values",
          shared, i));
    }
  }
  return sources;
}

PerLayerInputsSpec GemmaPerLayerInputs(const DecoderConfig& config,
                                       int64_t width) {
  const auto hidden = static_cast<float>(config.hidden_size);
  PerLayerInputsSpec inputs;
  inputs.table = "model.embed_tokens_per_layer.weight";
  inputs.rows = config.vocab_size;
  inputs.num_slices = config.num_layers;
  inputs.width = width;
  inputs.table_scale = std::sqrt(static_cast<float>(inputs.width));
  inputs.scale = std::sqrt(0.5f);
  inputs.projection = {"model.per_layer_model_projection", inputs.all(),
                       config.hidden_size};
  // What is projected is divided by sqrt(hidden) first, which the norm takes
  // out again, but for its epsilon.
  inputs.norm = {NormKind::kRms, "model.per_layer_projection_norm",
                 config.norm_epsilon * hidden};
  return inputs;
}

PerLayerSpec GemmaPerLayer(const DecoderConfig& config, int64_t width,
                           int index, const std::string& prefix) {
  PerLayerSpec part;
  part.index = index;
  part.width = width;
  part.activation = config.activation;
  part.gate = {prefix + "per_layer_input_gate", width, config.hidden_size};
  part.output = {prefix + "per_layer_projection", config.hidden_size, width};
  return part;
}

}  // namespace inlay
