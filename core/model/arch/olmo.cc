// OLMo 1 (arXiv:2402.00838): LayerNorms without weights.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr float kOlmoEpsilon = 1e-5f;  // whatever config.json says

absl::StatusOr<DecoderSpec> OlmoSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  config.norm_epsilon = kOlmoEpsilon;
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  if (const Json* clip = JsonFind(json, "clip_qkv"); clip != nullptr) {
    return absl::UnimplementedError(
        FormattedString("config.json: clip_qkv is %s; supported here is null",
                        DumpJson(*clip)));
  }
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerNoBias);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.final_norm.name.clear();
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec layer =
        LlamaStyleLayer(config, prefix, NormKind::kLayerNoBias,
                        LlamaStyleAttention(config, prefix, bias, bias),
                        LlamaStyleMlp(config, prefix, false));
    for (BlockSpec& block : layer.blocks) block.pre_norm.name.clear();
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmo(const Json& config,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, OlmoSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
