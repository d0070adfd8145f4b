// Mistral (arXiv:2310.06825): Llama with a sliding window on every layer, or
// none (later releases), or on some (Ministral 8B).
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// `may_mix`: layer_types say which layers have windows.
absl::StatusOr<DecoderSpec> MistralSpec(const Json& json, bool may_mix) {
  DecoderDefaults defaults;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  std::vector<bool> sliding;
  if (may_mix) {
    INLAY_ASSIGN_OR_RETURN(sliding, ReadSlidingLayers(json, config.num_layers));
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    const bool slides = sliding.empty() || sliding[static_cast<size_t>(i)];
    attention.window = slides ? window : 0;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMistral(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MistralSpec(config, false));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeMinistral(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MistralSpec(config, true));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
