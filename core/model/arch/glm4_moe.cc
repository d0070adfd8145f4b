// GLM-4.5 and later with experts (arXiv:2508.06471): norms on q and k, rope on
// a part of each head, experts chosen by sigmoid scores with a correction, as
// in DeepSeek-V3 (arXiv:2412.19437), and a shared one.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults Glm4MoeDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 151552;
  defaults.intermediate_size = 10944;
  defaults.num_layers = 46;
  defaults.num_heads = 96;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

struct Glm4Experts {
  MoeConfig moe;
  int64_t num_dense = 0;  // layers, the first ones
  int64_t num_shared = 0;
};

absl::StatusOr<Glm4Experts> ReadGlm4Experts(const Json& json) {
  Glm4Experts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {128, 8, 1408, true}));
  RoutingDesc& routing = experts.moe.routing;
  INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                         JsonInt(json, "n_group", 1, 1, routing.num_experts));
  INLAY_ASSIGN_OR_RETURN(const int64_t top_groups,
                         JsonInt(json, "topk_group", 1, 1, groups));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", 1.0, 0.0, 1e6));
  INLAY_ASSIGN_OR_RETURN(
      experts.num_dense,
      JsonInt(json, "first_k_dense_replace", 1, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(experts.num_shared,
                         JsonInt(json, "n_shared_experts", 1, 0, 64));
  routing.score = RoutingScore::kSigmoid;
  routing.num_groups = static_cast<int>(groups);
  routing.top_groups = static_cast<int>(top_groups);
  routing.group_score = GroupScore::kTopTwo;
  routing.scale = static_cast<float>(scale);
  return experts;
}

MoeSpec Glm4Part(const DecoderConfig& config, const Glm4Experts& experts,
                 const std::string& prefix) {
  MoeSpec spec = LlamaStyleMoe(config, experts.moe, prefix, "gate", false);
  spec.correction = prefix + "gate.e_score_correction_bias";
  if (experts.num_shared > 0) {
    spec.shared = SharedExpert(config, prefix + "shared_experts.",
                               experts.moe.width * experts.num_shared);
  }
  return spec;
}

absl::StatusOr<DecoderSpec> Glm4MoeSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, Glm4MoeDefaults()));
  INLAY_ASSIGN_OR_RETURN(const Glm4Experts experts, ReadGlm4Experts(json));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonBool(json, "use_qk_norm", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.5}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, false);
    if (head_norms) AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (i >= experts.num_dense) {
      mlp = Glm4Part(config, experts, prefix + "mlp.");
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGlm4Moe(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Glm4MoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
