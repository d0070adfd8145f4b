// Hy3 (Tencent Hunyuan 3): norms on q and k of each head, experts chosen by
// sigmoid scores with a correction and a shared one, the first layer dense.
// Names of tensors are those of published files, where transformers has its
// own. Source: transformers' HYV3Config and its modules.
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct HyExperts {
  MoeConfig moe;
  int64_t num_shared = 0;
  std::vector<bool> sparse;
};

absl::StatusOr<HyExperts> ReadHyExperts(const Json& json, int num_layers) {
  HyExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {192, 8, 1536, true}));
  RoutingDesc& routing = experts.moe.routing;
  routing.score = RoutingScore::kSigmoid;
  routing.normalised = true;  // whatever norm_topk_prob says
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "router_scaling_factor", 2.826, 1e-6, 1e6));
  routing.scale = static_cast<float>(scale);
  INLAY_ASSIGN_OR_RETURN(experts.num_shared,
                         JsonInt(json, "num_shared_experts", 1, 1, 64));
  INLAY_ASSIGN_OR_RETURN(experts.sparse, ReadMlpLayers(json, num_layers, 1));
  return experts;
}

MoeSpec HyMoe(const DecoderConfig& config, const HyExperts& experts,
              const std::string& prefix) {
  MoeSpec spec =
      LlamaStyleMoe(config, experts.moe, prefix, "router.gate", false);
  spec.correction = prefix + "expert_bias";
  spec.shared = SharedExpert(config, prefix + "shared_mlp.",
                             experts.num_shared * experts.moe.width);
  return spec;
}

absl::StatusOr<DecoderSpec> HyV3Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 120832;
  defaults.intermediate_size = 13312;
  defaults.num_layers = 80;
  defaults.num_heads = 64;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const HyExperts experts,
                         ReadHyExperts(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = 11158840.0}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.sparse[static_cast<size_t>(i)]) {
      mlp = HyMoe(config, experts, prefix + "mlp.");
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeHyV3(const Json& config,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, HyV3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
