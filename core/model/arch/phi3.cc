// Phi-3 (arXiv:2404.14219): Llama with fused q, k, v and fused gate and up,
// LongRoPE in its long variants, partial rotary in Phi-4-mini.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Phi3Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 32064;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 8192;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec rope,
      ReadRope(json, config, {.partial = 1.0, .yarn_is_longrope = true}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    attention.window = window;
    const int64_t qkv_width =
        int64_t{config.num_heads + 2 * config.num_kv_heads} * config.head_dim;
    attention.qkv = {
        {prefix + "self_attn.qkv_proj", qkv_width, config.hidden_size}};
    MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
    mlp.input = {{prefix + "mlp.gate_up_proj", 2 * config.intermediate_size,
                  config.hidden_size}};
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention, mlp));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakePhi3(const Json& config,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Phi3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
