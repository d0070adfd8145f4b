#include "core/model/arch/gemma_style.h"

#include <cmath>
#include <utility>

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
  INLAY_ASSIGN_OR_RETURN(const bool bidirectional,
                         JsonBool(json, "use_bidirectional_attention", false));
  if (bidirectional) {
    return absl::UnimplementedError(
        "config.json: use_bidirectional_attention is true; only causal "
        "attention is supported");
  }
  return config;
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

}  // namespace inlay
