// GLM-4.5 and later with experts (arXiv:2508.06471): norms on q and k, rope on
// a part of each head, experts chosen by sigmoid scores with a correction, as
// in DeepSeek-V3 (arXiv:2412.19437), and a shared one. Solar Open (Upstage,
// 2025): the same with rope on whole heads, experts in all layers and no norms
// of q and k.
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults Glm4MoeDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 151552;
  defaults.intermediate_size = 10944;
  defaults.num_layers = 46;
  defaults.num_heads = 96;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

absl::StatusOr<DecoderSpec> Glm4MoeSpec(const Json& json,
                                        const DecoderConfig& config,
                                        const DeepseekExperts& experts,
                                        bool head_norms,
                                        const RopeDefaults& rotary) {
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, rotary));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, false);
    if (head_norms) AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.HasExperts(i)) {
      mlp = DeepseekMoe(config, experts, prefix + "mlp.", true);
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGlm4Moe(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig sizes,
                         ReadDecoderConfig(config, Glm4MoeDefaults()));
  DeepseekDefaults defaults;
  defaults.moe = {128, 8, 1408, true};
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekExperts(config, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonBool(config, "use_qk_norm", false));
  INLAY_ASSIGN_OR_RETURN(
      const DecoderSpec spec,
      Glm4MoeSpec(config, sizes, experts, head_norms, {.partial = 0.5}));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeSolarOpen(const Json& json,
                                                     ModelBuild& build) {
  DecoderDefaults sizes = Glm4MoeDefaults();
  sizes.vocab_size = 196608;
  sizes.num_layers = 48;
  sizes.num_heads = 64;
  sizes.head_dim = 128;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, sizes));
  // Keys of the family that it is made of, which change nothing here.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_qk_norm", false));
  Json sparse = json;
  sparse["first_k_dense_replace"] = 0;
  DeepseekDefaults defaults;
  defaults.moe = {128, 8, 1280, true};
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekExperts(sparse, defaults));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         Glm4MoeSpec(json, config, experts, false,
                                     {.theta = 1e6, .partial = 1.0}));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
