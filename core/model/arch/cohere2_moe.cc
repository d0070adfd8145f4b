// Cohere 2 with experts (Command A+, North Code): attention and MLP side by
// side behind one norm, windows with rope on three layers of four. The first
// layers may be dense, and have rope though they see everything. Source of
// names and defaults: transformers' Cohere2MoeConfig and its modules.
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct CohereExperts {
  MoeConfig moe;
  int64_t num_shared = 0;
  bool averages = false;    // what experts and the shared one give
  int64_t dense_width = 0;  // of layers without experts
};

struct Cohere2MoeConfig {
  DecoderConfig decoder;
  NormKind norm = NormKind::kLayerNoBias;
  CohereExperts experts;
  std::vector<bool> sliding;  // [num_layers]
  std::vector<bool> sparse;   // [num_layers]
  int window = 0;
  bool bias = false;
  bool dense_rotates = false;  // whatever the layer sees
  float logit_scale = 1.0f;
  RopeSpec rope;
};

// RMS norms where config.json has an epsilon of theirs.
absl::StatusOr<DecoderConfig> ReadCohereDecoder(const Json& json,
                                                bool has_rms) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 8192;
  defaults.intermediate_size = 22528;
  defaults.num_layers = 40;
  defaults.num_heads = 64;
  defaults.head_dim = 128;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = has_rms ? "rms_norm_eps" : "layer_norm_eps";
  defaults.tie_embeddings = true;
  return ReadDecoderConfig(json, defaults);
}

absl::Status UnknownChoice(const char* key, const std::string& value,
                           const char* known) {
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is \"%s\"; supported here are %s", key, value, known));
}

absl::StatusOr<CohereExperts> ReadCohereExperts(const Json& json,
                                                const DecoderConfig& decoder) {
  CohereExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe, ReadMoeConfig(json, "intermediate_size",
                                 {8, 2, decoder.intermediate_size, true}));
  RoutingDesc& routing = experts.moe.routing;
  INLAY_ASSIGN_OR_RETURN(const std::string score,
                         JsonString(json, "expert_selection_fn", "softmax"));
  if (score == "sigmoid") {
    routing.score = RoutingScore::kSigmoid;
  } else if (score == "softmax") {
    routing.normalised = true;  // it is of the chosen alone
  } else {
    return UnknownChoice("expert_selection_fn", score, "softmax and sigmoid");
  }
  INLAY_ASSIGN_OR_RETURN(experts.num_shared,
                         JsonInt(json, "num_shared_experts", 0, 0, 64));
  INLAY_ASSIGN_OR_RETURN(
      const std::string combination,
      JsonString(json, "shared_expert_combination_strategy", "average"));
  if (combination != "average" && combination != "sum") {
    return UnknownChoice("shared_expert_combination_strategy", combination,
                         "average and sum");
  }
  experts.averages = experts.num_shared > 0 && combination == "average";
  if (experts.averages) routing.scale = 0.5f;
  INLAY_ASSIGN_OR_RETURN(experts.dense_width,
                         JsonInt(json, "prefix_dense_intermediate_size",
                                 decoder.intermediate_size, 1, kMaxHidden));
  return experts;
}

// Where config.json has no lists: `dense` layers without experts come first,
// and their windows are counted apart from the others'.
absl::Status ReadCohereLayers(const Json& json, Cohere2MoeConfig* config) {
  const int layers = config->decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config->sliding, ReadSlidingLayers(json, layers));
  INLAY_ASSIGN_OR_RETURN(
      config->sparse,
      ReadLayerKinds(json, "mlp_layer_types", layers, "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(const int64_t dense,
                         JsonInt(json, "first_k_dense_replace", 0, 0, layers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t dense_every,
      JsonInt(json, "prefix_dense_sliding_window_pattern", 1, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t every,
      JsonInt(json, "sliding_window_pattern", 4, 1, kMaxLayers));
  config->dense_rotates = dense_every == 1;
  if (config->sparse.empty()) {
    for (int i = 0; i < layers; ++i) config->sparse.push_back(i >= dense);
  }
  if (!config->sliding.empty()) return absl::OkStatus();
  for (int i = 0; i < layers; ++i) {
    config->sliding.push_back(i < dense ? (i + 1) % dense_every != 0
                                        : (i - dense + 1) % every != 0);
  }
  return absl::OkStatus();
}

// transformers reads `rope_parameters` alone, so what `rope_scaling` would mean
// is not known.
absl::Status CheckNoScaling(const Json& json) {
  const Json* scaling = JsonFind(json, "rope_scaling");
  if (scaling == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      "config.json: rope_scaling is set; rope is scaled by rope_parameters "
      "here");
}

absl::StatusOr<Cohere2MoeConfig> ReadCohere2Moe(const Json& json) {
  Cohere2MoeConfig config;
  INLAY_RETURN_IF_ERROR(CheckNoScaling(json));
  const bool has_rms = JsonFind(json, "rms_norm_eps") != nullptr;
  if (has_rms) config.norm = NormKind::kRms;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadCohereDecoder(json, has_rms));
  INLAY_ASSIGN_OR_RETURN(config.experts,
                         ReadCohereExperts(json, config.decoder));
  INLAY_RETURN_IF_ERROR(ReadCohereLayers(json, &config));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const double logit_scale,
                         JsonNumber(json, "logit_scale", 0.0625, 1e-6, 1e6));
  config.logit_scale = static_cast<float>(logit_scale);
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  return config;
}

PartSpec CohereFeedForward(const Cohere2MoeConfig& config, bool is_sparse,
                           const std::string& prefix) {
  const CohereExperts& experts = config.experts;
  if (!is_sparse) {
    DecoderConfig dense = config.decoder;
    dense.intermediate_size = experts.dense_width;
    return LlamaStyleMlp(dense, prefix, false);
  }
  MoeSpec moe = LlamaStyleMoe(config.decoder, experts.moe, prefix + "mlp.",
                              "gate", false);
  if (experts.num_shared > 0) {
    moe.shared = SharedExpert(config.decoder, prefix + "mlp.shared_experts.",
                              experts.num_shared * experts.moe.width);
    if (experts.averages) moe.shared->inner_scale = 0.5f;
  }
  return moe;
}

LayerSpec CohereLayer(const Cohere2MoeConfig& config, int index) {
  const auto i = static_cast<size_t>(index);
  const std::string prefix = LayerPrefix(index);
  const bool slides = config.sliding[i];
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, config.bias, config.bias);
  attention.rope_style = RopeStyle::kInterleaved;
  attention.window = slides ? config.window : 0;
  const bool rotates = slides || (config.dense_rotates && !config.sparse[i]);
  attention.rope = rotates ? 0 : -1;
  LayerSpec layer;
  layer.parallel = true;
  layer.pre_norm = {config.norm, prefix + "input_layernorm",
                    config.decoder.norm_epsilon};
  layer.blocks.resize(2);
  layer.blocks[0].part = std::move(attention);
  layer.blocks[1].part = CohereFeedForward(config, config.sparse[i], prefix);
  return layer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeCohere2Moe(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const Cohere2MoeConfig config, ReadCohere2Moe(json));
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, config.norm);
  spec.max_positions =
      UsablePositions(config.decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  spec.logit_scale = config.logit_scale;
  for (int i = 0; i < config.decoder.num_layers; ++i) {
    spec.layers.push_back(CohereLayer(config, i));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
