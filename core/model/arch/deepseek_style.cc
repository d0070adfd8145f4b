#include "core/model/arch/deepseek_style.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/model/arch/llama_style.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The published code gives these norms their class's default, whatever
// rms_norm_eps says (modeling_deepseek.py beside the weights; transformers).
constexpr float kLatentEpsilon = 1e-6f;

}  // namespace

absl::Status ExpectName(const Json& json, std::string_view key,
                        std::string_view known) {
  INLAY_ASSIGN_OR_RETURN(const std::string name, JsonString(json, key, known));
  if (name == known) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: %s is \"%s\"; supported here is \"%s\"", key, name, known));
}

absl::Status ExpectFlag(const Json& json, std::string_view key, bool known) {
  INLAY_ASSIGN_OR_RETURN(const bool flag, JsonBool(json, key, known));
  if (flag == known) return absl::OkStatus();
  const auto text = [](bool value) { return value ? "true" : "false"; };
  return absl::UnimplementedError(
      FormattedString("config.json: %s is %s; supported here is %s", key,
                      text(flag), text(known)));
}

absl::StatusOr<DeepseekExperts> ReadDeepseekExperts(
    const Json& json, const DeepseekDefaults& defaults) {
  DeepseekExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe, ReadMoeConfig(json, "moe_intermediate_size", defaults.moe));
  RoutingDesc& routing = experts.moe.routing;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t groups,
      JsonInt(json, "n_group",
              std::min<int64_t>(defaults.num_groups, routing.num_experts), 1,
              routing.num_experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_groups,
      JsonInt(json, "topk_group", std::min(defaults.top_groups, groups), 1,
              groups));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", defaults.scale, 0.0, 1e6));
  INLAY_ASSIGN_OR_RETURN(experts.num_dense,
                         JsonInt(json, "first_k_dense_replace",
                                 defaults.num_dense, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(experts.every,
                         JsonInt(json, "moe_layer_freq", 1, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(
      experts.num_shared,
      JsonInt(json, "n_shared_experts", defaults.num_shared, 0, 64));
  routing.score = RoutingScore::kSigmoid;
  routing.num_groups = static_cast<int>(groups);
  routing.top_groups = static_cast<int>(top_groups);
  routing.group_score = GroupScore::kTopTwo;
  routing.scale = static_cast<float>(scale);
  return experts;
}

absl::StatusOr<DeepseekExperts> ReadDeepseekV3Experts(
    const Json& json, const DeepseekDefaults& defaults) {
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "sigmoid"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "topk_method", "noaux_tc"));
  return ReadDeepseekExperts(json, defaults);
}

DeepseekDefaults DeepseekV3Defaults() {
  DeepseekDefaults defaults;
  defaults.moe = {256, 8, 2048, true};
  defaults.num_groups = 8;
  defaults.top_groups = 4;
  defaults.scale = 2.5;
  defaults.num_dense = 3;
  return defaults;
}

MoeSpec DeepseekMoe(const DecoderConfig& config, const DeepseekExperts& experts,
                    const std::string& prefix, bool corrected,
                    const ExpertNames& names) {
  MoeSpec spec =
      LlamaStyleMoe(config, experts.moe, prefix, "gate", false, names);
  if (corrected) spec.correction = prefix + "gate.e_score_correction_bias";
  if (experts.num_shared > 0) {
    spec.shared = SharedExpert(config, prefix + "shared_experts.",
                               experts.moe.width * experts.num_shared);
  }
  return spec;
}

absl::StatusOr<LatentConfig> ReadLatentConfig(const Json& json, int num_heads,
                                              const LatentConfig& defaults) {
  const auto read = [&](std::string_view key, int64_t fallback) {
    return JsonInt(json, key, fallback, 1, kMaxHeadDim);
  };
  LatentConfig latent;
  latent.query_rank = 0;
  // null: not compressed.
  if (!json.contains("q_lora_rank") ||
      JsonFind(json, "q_lora_rank") != nullptr) {
    INLAY_ASSIGN_OR_RETURN(
        latent.query_rank,
        JsonInt(json, "q_lora_rank", defaults.query_rank, 1, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t rank,
                         read("kv_lora_rank", defaults.rank));
  INLAY_ASSIGN_OR_RETURN(const int64_t key_dim,
                         read("qk_nope_head_dim", defaults.key_dim));
  INLAY_ASSIGN_OR_RETURN(const int64_t rope_dim,
                         read("qk_rope_head_dim", defaults.rope_dim));
  INLAY_ASSIGN_OR_RETURN(const int64_t value_dim,
                         read("v_head_dim", defaults.value_dim));
  if (num_heads * (key_dim + value_dim) > kMaxHidden ||
      num_heads * (rank + rope_dim) > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %d heads with qk_nope_head_dim %d, v_head_dim %d and "
        "rows of %d (kv_lora_rank and qk_rope_head_dim); all heads together "
        "may be %d wide",
        num_heads, key_dim, value_dim, rank + rope_dim, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(latent.bias, JsonBool(json, "attention_bias", false));
  latent.shares_rotate = defaults.shares_rotate;
  latent.theta = defaults.theta;
  latent.rank = static_cast<int>(rank);
  latent.key_dim = static_cast<int>(key_dim);
  latent.rope_dim = static_cast<int>(rope_dim);
  latent.value_dim = static_cast<int>(value_dim);
  return latent;
}

absl::StatusOr<RopeSpec> ReadLatentRope(const Json& json,
                                        const DecoderConfig& config,
                                        const LatentConfig& latent) {
  DecoderConfig rotated = config;
  rotated.head_dim = latent.rope_dim;
  RopeDefaults defaults;
  defaults.theta = latent.theta;
  if (latent.shares_rotate) {
    rotated.head_dim += latent.key_dim;
    defaults.partial = static_cast<double>(latent.rope_dim) / rotated.head_dim;
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, rotated, defaults));
  if (rope.rotary_dim != latent.rope_dim) {
    return absl::UnimplementedError(FormattedString(
        "config.json: partial_rotary_factor rotates %d of %d dimensions; "
        "latent attention rotates all of qk_rope_head_dim",
        rope.rotary_dim, latent.rope_dim));
  }
  return rope;
}

LatentAttentionSpec LatentStyleAttention(const DecoderConfig& config,
                                         const LatentConfig& latent,
                                         const std::string& prefix,
                                         std::string_view part) {
  const std::string name = prefix + std::string(part);
  const int64_t hidden = config.hidden_size;
  const int64_t heads = config.num_heads;
  LatentAttentionSpec spec;
  spec.num_heads = config.num_heads;
  spec.rank = latent.rank;
  spec.key_dim = latent.key_dim;
  spec.rope_dim = latent.rope_dim;
  spec.value_dim = latent.value_dim;
  const int64_t query_width = heads * spec.query_dim();
  if (latent.query_rank == 0) {
    spec.query = {{name + "q_proj", query_width, hidden}};
  } else {
    spec.query = {{name + "q_a_proj", latent.query_rank, hidden, latent.bias},
                  {name + "q_b_proj", query_width, latent.query_rank}};
    spec.query_norm = {NormKind::kRms, name + "q_a_layernorm", kLatentEpsilon};
  }
  spec.down = {name + "kv_a_proj_with_mqa", spec.row_dim(), hidden,
               latent.bias};
  spec.norm = {NormKind::kRms, name + "kv_a_layernorm", kLatentEpsilon};
  spec.up = {name + "kv_b_proj",
             heads * (int64_t{spec.key_dim} + spec.value_dim), spec.rank};
  spec.up_keys = {name + "k_b_proj", heads * spec.rank, spec.key_dim};
  spec.up_values = {name + "v_b_proj", heads * spec.value_dim, spec.rank};
  spec.output = {name + "o_proj", hidden, heads * spec.value_dim, latent.bias};
  spec.scale = 1.0f / std::sqrt(static_cast<float>(spec.query_dim()));
  return spec;
}

LatentAttentionSpec RotatedLatentAttention(const DecoderConfig& config,
                                           const LatentConfig& latent,
                                           const RopeSpec& rope,
                                           const std::string& prefix,
                                           std::string_view part) {
  LatentAttentionSpec spec = LatentStyleAttention(config, latent, prefix, part);
  spec.rope = 0;
  if (rope.mscale_all_dim != 0.0) {
    const double magnitude = YarnMagnitude(rope.factor, rope.mscale_all_dim);
    spec.scale *= static_cast<float>(magnitude * magnitude);
  }
  return spec;
}

absl::StatusOr<DecoderSpec> DeepseekDecoder(const Json& json,
                                            const DecoderConfig& config,
                                            const LatentConfig& latent,
                                            const DeepseekExperts& experts,
                                            bool corrected) {
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadLatentRope(json, config, latent));
  INLAY_ASSIGN_OR_RETURN(const bool interleaved,
                         JsonFlag(json, "rope_interleave", true));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LatentAttentionSpec attention =
        RotatedLatentAttention(config, latent, rope, prefix);
    if (!interleaved) attention.rope_style = RopeStyle::kHalf;
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.HasExperts(i)) {
      mlp = DeepseekMoe(config, experts, prefix + "mlp.", corrected);
    }
    spec.layers.push_back(LlamaStyleLayer(
        config, prefix, NormKind::kRms, std::move(attention), std::move(mlp)));
  }
  return spec;
}

absl::StatusOr<DecoderSpec> LlamaDeepseekDecoder(
    const Json& json, const DecoderConfig& config,
    const DeepseekExperts& experts) {
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, LlamaStyleSpec(json, config, {}));
  for (int i = 0; i < config.num_layers; ++i) {
    if (!experts.HasExperts(i)) continue;
    spec.layers[static_cast<size_t>(i)].blocks[1].part =
        DeepseekMoe(config, experts, LayerPrefix(i) + "mlp.", false);
  }
  return spec;
}

}  // namespace inlay
