// OLMoE (arXiv:2409.02060): mixtures of experts in all layers, norms of q and k
// over all heads at once.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> OlmoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 2048;
  defaults.num_layers = 16;
  defaults.num_heads = 16;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const MoeConfig moe,
      ReadMoeConfig(json, "intermediate_size", {64, 8, 2048, false}));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  INLAY_ASSIGN_OR_RETURN(const float clip, ReadClip(json));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.joint_norms = true;
    attention.clip = clip;
    spec.layers.push_back(LlamaStyleLayer(
        config, prefix, NormKind::kRms, attention,
        LlamaStyleMoe(config, moe, prefix + "mlp.", "gate", false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmoe(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OlmoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
