// OLMoE (arXiv:2409.02060): mixtures of experts in all layers, norms of q and k
// over all heads at once. FlexOlmo (arXiv:2507.07024): the same with norms
// after the parts instead of before them.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults OlmoeDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 2048;
  defaults.num_layers = 16;
  defaults.num_heads = 16;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

DecoderDefaults FlexOlmoDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 100352;
  defaults.max_positions = 4096;
  return defaults;
}

absl::StatusOr<DecoderSpec> OlmoeSpec(const Json& json, bool is_flex) {
  INLAY_ASSIGN_OR_RETURN(
      const DecoderConfig config,
      ReadDecoderConfig(json, is_flex ? FlexOlmoDefaults() : OlmoeDefaults()));
  const MoeDefaults experts = is_flex ? MoeDefaults{7, 5, 11008, false}
                                      : MoeDefaults{64, 8, 2048, false};
  INLAY_ASSIGN_OR_RETURN(const MoeConfig moe,
                         ReadMoeConfig(json, "intermediate_size", experts));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec rope,
      ReadRope(json, config, {.theta = is_flex ? 5e5 : 1e4}));
  float clip = 0.0f;
  if (!is_flex) {
    INLAY_ASSIGN_OR_RETURN(clip, ReadClip(json));
  }
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.joint_norms = true;
    attention.clip = clip;
    MoeSpec mlp = LlamaStyleMoe(config, moe, prefix + "mlp.", "gate", false);
    spec.layers.push_back(is_flex
                              ? PostNormLayer(config, prefix, NormKind::kRms,
                                              attention, std::move(mlp))
                              : LlamaStyleLayer(config, prefix, NormKind::kRms,
                                                attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmoe(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OlmoeSpec(config, false));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeFlexOlmo(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OlmoeSpec(config, true));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
