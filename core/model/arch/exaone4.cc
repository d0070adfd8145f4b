// EXAONE 4 (arXiv:2507.11407): norms after the parts and on the heads of q and
// k; where some layers slide, the full ones have no rope. And K-EXAONE: the
// same attention, norms before the parts, experts as in DeepSeek-V3. Source of
// names and defaults: transformers' Exaone4Config and ExaoneMoeConfig.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
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
        ShownJson(*pattern)));
  }
  // The last layer is full whatever the pattern says.
  for (size_t i = 0; i + 1 < static_cast<size_t>(num_layers); ++i) {
    sliding.push_back(letters[i % letters.size()] == 'L');
  }
  sliding.push_back(false);
  return sliding;
}

DecoderDefaults ExaoneDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 102400;
  defaults.intermediate_size = 16384;
  defaults.num_kv_heads = 32;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

AttentionSpec ExaoneAttention(const DecoderConfig& config, int window,
                              bool slides, const std::string& prefix) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  AddHeadNorms(config, prefix, NormKind::kRms, &attention);
  attention.window = slides ? window : 0;
  if (window > 0 && !slides) attention.rope = -1;
  return attention;
}

// What the two have in common: all but layers.
struct ExaoneParts {
  DecoderConfig config;
  int window = 0;
  std::vector<bool> sliding;
  DecoderSpec spec;

  AttentionSpec Attention(int layer) const {
    return ExaoneAttention(config, window, sliding[static_cast<size_t>(layer)],
                           LayerPrefix(layer));
  }
};

absl::StatusOr<ExaoneParts> ReadExaoneParts(const Json& json) {
  ExaoneParts out;
  INLAY_ASSIGN_OR_RETURN(out.config, ReadDecoderConfig(json, ExaoneDefaults()));
  const DecoderConfig& config = out.config;
  INLAY_ASSIGN_OR_RETURN(out.window, ReadWindow(json, 4096));
  out.sliding.resize(static_cast<size_t>(config.num_layers), false);
  if (out.window > 0) {
    INLAY_ASSIGN_OR_RETURN(out.sliding,
                           ReadExaoneSliding(json, config.num_layers));
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  out.spec = LlamaStyleDecoder(config, NormKind::kRms);
  out.spec.max_positions = UsablePositions(config.max_positions, rope);
  out.spec.ropes.push_back(rope);
  return out;
}

// num_shared_experts, and mlp_layer_types or first_k_dense_replace.
absl::StatusOr<DeepseekExperts> ReadExaoneExperts(const Json& json,
                                                  int num_layers) {
  DeepseekDefaults defaults;
  defaults.moe = {64, 8, 1024, true};
  defaults.scale = 2.5;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, defaults));
  INLAY_ASSIGN_OR_RETURN(experts.num_shared,
                         JsonInt(json, "num_shared_experts", 1, 0, 64));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  return experts;
}

// Published names; transformers' own has the correction in the router.
MoeSpec ExaoneMoe(const DecoderConfig& config, const DeepseekExperts& experts,
                  const std::string& prefix) {
  MoeSpec moe = DeepseekMoe(config, experts, prefix, false);
  moe.correction = prefix + "e_score_correction_bias";
  return moe;
}

absl::StatusOr<DecoderSpec> ExaoneMoeSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(ExaoneParts parts, ReadExaoneParts(json));
  const DecoderConfig& config = parts.config;
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadExaoneExperts(json, config.num_layers));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.HasExperts(i)) {
      mlp = ExaoneMoe(config, experts, prefix + "mlp.");
    }
    parts.spec.layers.push_back(LlamaStyleLayer(
        config, prefix, NormKind::kRms, parts.Attention(i), std::move(mlp)));
  }
  return std::move(parts.spec);
}

absl::StatusOr<DecoderSpec> Exaone4Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(ExaoneParts parts, ReadExaoneParts(json));
  for (int i = 0; i < parts.config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    parts.spec.layers.push_back(
        PostNormLayer(parts.config, prefix, NormKind::kRms, parts.Attention(i),
                      LlamaStyleMlp(parts.config, prefix, false)));
  }
  return std::move(parts.spec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeExaone4(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Exaone4Spec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeExaoneMoe(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, ExaoneMoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
