// MiniMax-M2 (arXiv:2506.13585 and its published code): norms on q and k over
// all heads at once, rope on a part of each head, experts chosen by sigmoid
// scores with a correction.
#include <algorithm>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults MiniMaxM2Defaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 200064;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 1536;
  defaults.num_layers = 62;
  defaults.num_heads = 48;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 196608;
  return defaults;
}

// Published files say rotary_dim for partial_rotary_factor.
absl::StatusOr<RopeSpec> ReadMiniMaxRope(const Json& json,
                                         const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rotary_dim,
      JsonInt(json, "rotary_dim", config.head_dim, 1, config.head_dim));
  RopeDefaults defaults;
  defaults.theta = 5e6;
  defaults.partial = static_cast<double>(rotary_dim) / config.head_dim;
  return ReadRope(json, config, defaults);
}

// What MiniMax's code knows besides, and no published model has.
absl::Status CheckMiniMaxM2(const Json& json) {
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "sigmoid"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "qk_norm_type", "per_layer"));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_qk_norm", true));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_routing_bias", true));
  const Json* types = JsonFind(json, "attn_type_list");
  if (types == nullptr) return absl::OkStatus();
  if (types->is_array() &&
      std::all_of(types->begin(), types->end(),
                  [](const Json& type) { return type == 1; })) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "config.json: attn_type_list is %s; supported here is 1 for every layer",
      ShownJson(*types)));
}

absl::StatusOr<DecoderSpec> MiniMaxM2Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, MiniMaxM2Defaults()));
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {256, 8, 1536, true}));
  INLAY_RETURN_IF_ERROR(CheckMiniMaxM2(json));
  moe.routing.score = RoutingScore::kSigmoid;
  moe.routing.normalised = true;
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadMiniMaxRope(json, config));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.joint_norms = true;
    MoeSpec experts = LlamaStyleMoe(config, moe, prefix + "block_sparse_moe.",
                                    "gate", false, {"w1", "w3", "w2"});
    experts.correction = prefix + "block_sparse_moe.e_score_correction_bias";
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(experts)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMiniMaxM2(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MiniMaxM2Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
