// JetMoE (arXiv:2404.07413): mixtures of attention heads and of MLPs, both by
// the softmax of a token's best experts and with a bias behind their sums; keys
// and values are of all tokens alike. Source of names and defaults:
// transformers' JetMoeConfig.
#include <cmath>
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of layers' norms; rms_norm_eps is the last one's.
constexpr float kLayerEpsilon = 1e-6f;

struct JetMoeConfig {
  DecoderConfig decoder;
  MoeConfig moe;
  RopeSpec rope;
};

absl::StatusOr<JetMoeConfig> ReadJetMoeConfig(const Json& json) {
  JetMoeConfig config;
  INLAY_ASSIGN_OR_RETURN(
      config.moe, ReadMoeConfig(json, "intermediate_size", {8, 2, 5632, true}));
  // Those of attention, too.
  INLAY_RETURN_IF_ERROR(
      CheckNumExperts(json, 2 * config.moe.routing.num_experts));
  config.moe.routing.normalised = true;  // whatever norm_topk_prob says
  DecoderDefaults defaults;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.num_layers = 12;
  defaults.num_heads = 16;
  defaults.max_positions = 4096;
  defaults.activation_key = "activation_function";
  defaults.tie_embeddings = true;
  // Heads are those of keys; their size is always given.
  defaults.heads_key = "num_key_value_heads";
  Json own = json;
  INLAY_ASSIGN_OR_RETURN(const int64_t other_name,
                         JsonInt(json, "head_dim", 128, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(json, "kv_channels", other_name, 1, kMaxHeadDim));
  own["head_dim"] = head_dim;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoderConfig(own, defaults));
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(own, config.decoder, {}));
  return config;
}

AttentionExpertsSpec JetMoeAttention(const JetMoeConfig& config,
                                     const std::string& prefix) {
  const DecoderConfig& decoder = config.decoder;
  const int64_t hidden = decoder.hidden_size;
  const int64_t width = int64_t{decoder.num_kv_heads} * decoder.head_dim;
  AttentionExpertsSpec attention;
  attention.num_kv_heads = decoder.num_kv_heads;
  attention.head_dim = decoder.head_dim;
  attention.routing = config.moe.routing;
  attention.router = {prefix + "experts.router.layer",
                      config.moe.routing.num_experts, hidden};
  attention.key_value = {prefix + "kv_proj", 2 * width, hidden};
  for (int e = 0; e < config.moe.routing.num_experts; ++e) {
    const std::string expert = FormattedString("%sexperts.%d.", prefix, e);
    attention.queries.push_back({expert + "input_linear", width, hidden});
    attention.outputs.push_back({expert + "output_linear", hidden, width});
  }
  attention.bias = prefix + "experts.bias";
  attention.rope = 0;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(decoder.head_dim));
  return attention;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeJetMoe(const Json& json,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const JetMoeConfig config, ReadJetMoeConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderConfig layers = decoder;
  layers.norm_epsilon = kLayerEpsilon;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    MoeSpec moe = LlamaStyleMoe(decoder, config.moe, prefix + "mlp.",
                                "router.layer", false);
    moe.bias = prefix + "mlp.bias";
    spec.layers.push_back(LlamaStyleLayer(
        layers, prefix, NormKind::kRms,
        JetMoeAttention(config, prefix + "self_attention."), std::move(moe)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
