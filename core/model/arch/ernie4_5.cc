// ERNIE 4.5 (Baidu, 2025): Llama with rope of neighbours; the larger ones with
// mixtures of experts by softmax, their choice corrected, and shared ones.
// Files with experts for images beside them have routers that lie inputs by
// outputs. Source of names and defaults: transformers' Ernie4_5Config and
// Ernie4_5_MoeConfig.
#include <algorithm>
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

constexpr double kTheta = 500000.0;

AttentionSpec ErnieAttention(const DecoderConfig& config,
                             const std::string& prefix, bool bias) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  attention.rope_style = RopeStyle::kInterleaved;
  return attention;
}

absl::StatusOr<DecoderSpec> Ernie45Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 103424;
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 3072;
  defaults.num_layers = 18;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 2;
  defaults.head_dim = UnlessNull(json, "head_dim", 128);
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(json, "use_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = kTheta}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          ErnieAttention(config, prefix, bias),
                                          LlamaStyleMlp(config, prefix, bias)));
  }
  return spec;
}

struct ErnieExperts {
  MoeConfig moe;
  int64_t num_shared = 0;  // as one of that many times the width
  int64_t first = 0;       // layers from here on, to the last one and no other
  int64_t last = 0;
  int64_t every = 1;         // of them, one in so many has experts
  std::vector<bool> sparse;  // a layer each; empty: by the numbers above
  bool routers_by_inputs = false;

  bool HasExperts(int layer) const {
    if (!sparse.empty()) return sparse[static_cast<size_t>(layer)];
    return (layer + 1) % every == 0 && layer >= first && layer <= last;
  }
};

absl::Status ReadErnieRouting(const Json& json, MoeConfig* moe) {
  INLAY_ASSIGN_OR_RETURN(const int64_t experts,
                         JsonInt(json, "moe_num_experts", 64, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(CheckNumExperts(json, experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      JsonInt(json, "moe_k", std::min<int64_t>(6, experts), 1,
              std::min<int64_t>(experts, kMaxExpertsPerToken)));
  INLAY_ASSIGN_OR_RETURN(
      moe->width, JsonInt(json, "moe_intermediate_size", 1536, 1, kMaxHidden));
  // Weights are divided by their sum or by this: by their sum as it is small.
  constexpr double kSmall = 1e-6;
  INLAY_ASSIGN_OR_RETURN(const double least,
                         JsonNumber(json, "moe_norm_min", 1e-12, 0.0, 1e6));
  if (least > kSmall) {
    return absl::UnimplementedError(FormattedString(
        "config.json: moe_norm_min is %g; supported here are up to %g", least,
        kSmall));
  }
  moe->routing.num_experts = static_cast<int>(experts);
  moe->routing.top_k = static_cast<int>(top_k);
  moe->routing.normalised = true;
  return absl::OkStatus();
}

absl::StatusOr<ErnieExperts> ReadErnieExperts(const Json& json,
                                              int num_layers) {
  ErnieExperts experts;
  INLAY_RETURN_IF_ERROR(ReadErnieRouting(json, &experts.moe));
  INLAY_ASSIGN_OR_RETURN(experts.num_shared,
                         JsonInt(json, "moe_num_shared_experts", 2, 0, 64));
  INLAY_ASSIGN_OR_RETURN(
      experts.first, JsonInt(json, "moe_layer_start_index", 1, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      experts.last, JsonInt(json, "moe_layer_end_index", -1, -1, kMaxLayers));
  if (experts.last == -1) experts.last = num_layers - 1;
  INLAY_ASSIGN_OR_RETURN(experts.every,
                         JsonInt(json, "moe_layer_interval", 1, 1, kMaxLayers));
  // What core/formats/text_model.cc says of ERNIE 4.5 VL's.
  INLAY_ASSIGN_OR_RETURN(experts.routers_by_inputs,
                         JsonBool(json, "vision_experts", false));
  if (!experts.routers_by_inputs) return experts;
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  return experts;
}

// `bias`: of all but routers and the experts they choose.
PartSpec ErnieMlp(const DecoderConfig& config, const ErnieExperts& experts,
                  int layer, bool bias) {
  const std::string prefix = LayerPrefix(layer);
  if (!experts.HasExperts(layer)) return LlamaStyleMlp(config, prefix, bias);
  const std::string name = prefix + "mlp.";
  MoeSpec moe = LlamaStyleMoe(config, experts.moe, name, "gate", false);
  moe.router.transposed = experts.routers_by_inputs;
  moe.correction = name + "moe_statics.e_score_correction_bias";
  if (experts.num_shared > 0) {
    moe.shared = SharedExpert(config, name + "shared_experts.",
                              experts.moe.width * experts.num_shared);
    for (LinearSpec& input : moe.shared->input) input.bias = bias;
    moe.shared->output.bias = bias;
  }
  return moe;
}

absl::StatusOr<DecoderSpec> ErnieMoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 103424;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 12288;
  defaults.num_layers = 28;
  defaults.num_heads = 20;
  defaults.num_kv_heads = 4;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const ErnieExperts experts,
                         ReadErnieExperts(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(json, "use_bias", false));
  if (bias && config.tie_embeddings) {
    return absl::UnimplementedError(
        "config.json: use_bias and tie_word_embeddings are true; supported "
        "here is one of them: the head has a bias, too");
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = kTheta}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.head_bias = bias;
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          ErnieAttention(config, prefix, bias),
                                          ErnieMlp(config, experts, i, bias)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeErnie45(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Ernie45Spec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeErnie45Moe(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, ErnieMoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
