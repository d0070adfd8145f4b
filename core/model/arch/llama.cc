// Llama 1 to 3 (arXiv:2302.13971, 2307.09288, 2407.21783).
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> LlamaSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, {}));
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(
        config, prefix, NormKind::kRms,
        LlamaStyleAttention(config, prefix, attention_bias, attention_bias),
        LlamaStyleMlp(config, prefix, mlp_bias)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, LlamaSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
