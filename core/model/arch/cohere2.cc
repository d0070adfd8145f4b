// Command R (Cohere), and Command R7B and later (Cohere 2; arXiv:2504.00698):
// attention and MLP read one LayerNorm side by side, scaled logits; in Command
// R+ LayerNorms of heads with weights for each, in the second rope on sliding
// layers only. Compass (North Micro Vision's text): the same with ropes by
// layers' type, of halves.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults CohereDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 8192;
  defaults.intermediate_size = 22528;
  defaults.num_layers = 40;
  defaults.num_heads = 64;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.tie_embeddings = true;
  return defaults;
}

// Attention and MLP side by side behind one norm.
LayerSpec CohereLayer(const DecoderConfig& config, const std::string& prefix,
                      AttentionSpec attention) {
  LayerSpec layer;
  layer.parallel = true;
  layer.pre_norm = {NormKind::kLayerNoBias, prefix + "input_layernorm",
                    config.norm_epsilon};
  layer.blocks.resize(2);
  layer.blocks[0].part = std::move(attention);
  layer.blocks[1].part = LlamaStyleMlp(config, prefix, false);
  return layer;
}

// Without, all layers have rope.
struct CohereWindows {
  int window = 0;
  std::vector<bool> sliding;  // [num_layers]; empty: none
};

absl::StatusOr<DecoderSpec> CohereSpec(const Json& json,
                                       const DecoderConfig& config,
                                       const CohereWindows& windows,
                                       const RopeDefaults& rope_defaults,
                                       bool head_norms = false) {
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const double logit_scale,
                         JsonNumber(json, "logit_scale", 0.0625, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, rope_defaults));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerNoBias);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.logit_scale = static_cast<float>(logit_scale);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.rope_style = RopeStyle::kInterleaved;
    if (head_norms) {
      AddHeadNorms(config, prefix, NormKind::kLayerNoBias, &attention);
      attention.q_norm.heads = config.num_heads;
      attention.k_norm.heads = config.num_kv_heads;
    }
    if (!windows.sliding.empty()) {
      const bool slides = windows.sliding[static_cast<size_t>(i)];
      attention.window = slides ? windows.window : 0;
      attention.rope = slides ? 0 : -1;
    }
    spec.layers.push_back(CohereLayer(config, prefix, std::move(attention)));
  }
  return spec;
}

// Of layers of `type`, by rope_parameters alone; nothing where it is null
// there. What stands outside of it is not read.
absl::StatusOr<std::optional<RopeSpec>> ReadCompassRope(
    const Json& json, const DecoderConfig& config, const char* type) {
  Json ropes = json;
  for (const char* key :
       {"rope_theta", "rope_scaling", "partial_rotary_factor"}) {
    ropes.erase(key);
  }
  const Json* parameters = JsonFind(ropes, "rope_parameters");
  const bool is_there = parameters != nullptr && parameters->is_object() &&
                        parameters->contains(type);
  if (!is_there) {
    return absl::UnimplementedError(FormattedString(
        "config.json: rope_parameters has no %s; supported here is an object "
        "or null for each type of layers",
        type));
  }
  if (JsonFind(*parameters, type) == nullptr) return std::optional<RopeSpec>();
  INLAY_ASSIGN_OR_RETURN(RopeSpec rope, ReadRope(ropes, config, {}, type));
  return std::optional(std::move(rope));
}

absl::StatusOr<DecoderSpec> CompassSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, CohereDefaults()));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const double logit_scale,
                         JsonNumber(json, "logit_scale", 1.0, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, config.num_layers));
  sliding.resize(static_cast<size_t>(config.num_layers), false);
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerNoBias);
  spec.logit_scale = static_cast<float>(logit_scale);
  int places[2] = {-1, -1};  // in spec.ropes: of full layers, of the others
  for (const bool slides : {false, true}) {
    if (std::find(sliding.begin(), sliding.end(), slides) == sliding.end()) {
      continue;
    }
    INLAY_ASSIGN_OR_RETURN(
        const std::optional<RopeSpec> rope,
        ReadCompassRope(json, config,
                        slides ? "sliding_attention" : "full_attention"));
    if (!rope.has_value()) continue;
    places[slides ? 1 : 0] = static_cast<int>(spec.ropes.size());
    spec.max_positions = std::max(spec.max_positions,
                                  UsablePositions(config.max_positions, *rope));
    spec.ropes.push_back(*rope);
  }
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const bool slides = sliding[static_cast<size_t>(i)];
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = slides ? window : 0;
    attention.rope = places[slides ? 1 : 0];
    spec.layers.push_back(CohereLayer(config, prefix, std::move(attention)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeCohere(const Json& json,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, CohereDefaults()));
  INLAY_ASSIGN_OR_RETURN(const bool norms,
                         JsonBool(json, "use_qk_norm", false));
  INLAY_ASSIGN_OR_RETURN(
      DecoderSpec spec,
      CohereSpec(json, config, {}, {.theta = 500000.0}, norms));
  // Published files say how long sequences may be here, and 8192 there.
  INLAY_ASSIGN_OR_RETURN(
      const int64_t longest,
      JsonInt(json, "model_max_length", 1, 1, kMaxPositions));
  if (spec.ropes.front().scaling == RopeScaling::kNone) {
    spec.max_positions = std::max(spec.max_positions, longest);
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeCohere2(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, CohereDefaults()));
  CohereWindows windows;
  INLAY_ASSIGN_OR_RETURN(windows.window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(windows.sliding,
                         ReadSlidingPattern(json, config.num_layers, 4));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         CohereSpec(json, config, windows, {}));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeCohereCompass(const Json& json,
                                                         ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, CompassSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
