// GLM-4 (arXiv:2406.12793) and GLM-4-0414 (its published code): rope that pairs
// neighbours on a part of each head, fused gate and up; the latter with norms
// on both sides of each part.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The norm before the MLP is called post_attention_layernorm.
void AddPostNorms(const DecoderConfig& config, const std::string& prefix,
                  LayerSpec* layer) {
  layer->blocks[0].post_norm = {
      NormKind::kRms, prefix + "post_self_attn_layernorm", config.norm_epsilon};
  layer->blocks[1].post_norm = {NormKind::kRms, prefix + "post_mlp_layernorm",
                                config.norm_epsilon};
}

absl::StatusOr<DecoderSpec> Glm4Spec(const Json& json, bool post_norms) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151552;
  defaults.intermediate_size = 13696;
  defaults.num_layers = 40;
  defaults.num_kv_heads = 2;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1.5625e-7;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", true));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.5}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, false);
    attention.rope_style = RopeStyle::kInterleaved;
    MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
    mlp.input = {{prefix + "mlp.gate_up_proj", 2 * config.intermediate_size,
                  config.hidden_size}};
    LayerSpec layer = LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                                      std::move(mlp));
    if (post_norms) AddPostNorms(config, prefix, &layer);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGlm4(const Json& config,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Glm4Spec(config, true));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeGlm(const Json& config,
                                               ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Glm4Spec(config, false));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
