// EXAONE 4 (arXiv:2507.11407): norms after the parts and on the heads of q and
// k; where some layers slide, the full ones have no rope.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Every fourth layer is full where layer_types is absent, by a number or the
// length of a string of L and G.
absl::StatusOr<std::vector<bool>> ReadExaoneSliding(const Json& json,
                                                    int num_layers) {
  const Json* pattern = JsonFind(json, "sliding_window_pattern");
  if (pattern == nullptr || !pattern->is_string()) {
    return ReadSlidingPattern(json, num_layers, 4);
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!sliding.empty()) return sliding;
  const std::string letters = pattern->get<std::string>();
  if (letters.empty() || letters.find_first_not_of("LG") != letters.npos) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: sliding_window_pattern is %s; it must be a number or a "
        "string of L and G",
        DumpJson(*pattern)));
  }
  // The last layer is full whatever the pattern says.
  for (size_t i = 0; i + 1 < static_cast<size_t>(num_layers); ++i) {
    sliding.push_back(letters[i % letters.size()] == 'L');
  }
  sliding.push_back(false);
  return sliding;
}

absl::StatusOr<DecoderSpec> Exaone4Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 102400;
  defaults.intermediate_size = 16384;
  defaults.num_kv_heads = 32;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  std::vector<bool> sliding(static_cast<size_t>(config.num_layers), false);
  if (window > 0) {
    INLAY_ASSIGN_OR_RETURN(sliding, ReadExaoneSliding(json, config.num_layers));
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const bool slides = sliding[static_cast<size_t>(i)];
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.window = slides ? window : 0;
    if (window > 0 && !slides) attention.rope = -1;
    spec.layers.push_back(PostNormLayer(config, prefix, NormKind::kRms,
                                        attention,
                                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeExaone4(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Exaone4Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
