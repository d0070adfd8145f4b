// OLMo 2 (arXiv:2501.00656): norms after the parts instead of before them, and
// on q and k over all heads at once.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Olmo2Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.joint_norms = true;
    spec.layers.push_back(PostNormLayer(config, prefix, NormKind::kRms,
                                        attention,
                                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmo2(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Olmo2Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
