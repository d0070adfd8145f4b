// OLMo 1 (arXiv:2402.00838): LayerNorms without weights; in some q, k and v are
// cut off.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr float kOlmoEpsilon = 1e-5f;  // whatever config.json says

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmo(const Json& json,
                                                ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  config.norm_epsilon = kOlmoEpsilon;
  LlamaVariant variant;
  variant.norm = NormKind::kLayerNoBias;
  variant.clips = true;
  // No key of this family's.
  variant.make_mlp = [](const DecoderConfig& mlp, const std::string& prefix,
                        bool) { return LlamaStyleMlp(mlp, prefix, false); };
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         LlamaStyleSpec(json, config, variant));
  spec.final_norm.name.clear();
  for (LayerSpec& layer : spec.layers) {
    for (BlockSpec& block : layer.blocks) block.pre_norm.name.clear();
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
