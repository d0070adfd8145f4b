// LongCat-Flash (arXiv:2509.01322): every layer has latent attention and a
// dense MLP twice, and a mixture of experts beside the second pair: it reads
// what the first MLP reads, and what it gives is added at the layer's end. Some
// of its experts give back what they read. Source of names and defaults:
// transformers' LongcatFlashConfig.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct LongcatExperts {
  MoeConfig moe;  // those that have matrices
  int64_t num_identity = 0;
};

// A layer counts twice as num_hidden_layers, which files may have instead.
absl::StatusOr<Json> InUsualKeys(const Json& own) {
  constexpr char kLayers[] = "num_hidden_layers";
  Json json =
      WithUsualNames(own, {{"num_local_experts", "n_routed_experts"},
                           {"moe_topk", "num_experts_per_tok"},
                           {"ffn_hidden_size", "intermediate_size"},
                           {"expert_ffn_hidden_size", "moe_intermediate_size"},
                           {"num_layers", kLayers}});
  if (JsonFind(own, "num_layers") != nullptr) return json;
  INLAY_ASSIGN_OR_RETURN(const int64_t halves,
                         JsonInt(own, kLayers, 56, 2, 2 * kMaxLayers));
  json[kLayers] = halves / 2;
  return json;
}

absl::Status ExpectPublished(const Json& json) {
  INLAY_RETURN_IF_ERROR(ExpectName(json, "attention_method", "MLA"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "zero_expert_type", "identity"));
  for (const char* key :
       {"mla_scale_q_lora", "mla_scale_kv_lora", "rope_interleave"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, true));
  }
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "router_bias", false));
  return ExpectFlag(json, "norm_topk_prob", false);
}

absl::StatusOr<LongcatExperts> ReadLongcatExperts(const Json& json) {
  LongcatExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.num_identity,
      JsonInt(json, "zero_expert_num", UnlessNull(json, "zero_expert_num", 256),
              0, kMaxExperts - 1));
  const int64_t most = kMaxExperts - experts.num_identity;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t count,
      JsonInt(json, "n_routed_experts", std::min<int64_t>(512, most), 1, most));
  INLAY_RETURN_IF_ERROR(CheckNumExperts(json, count));
  const int64_t all = count + experts.num_identity;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      JsonInt(json, "num_experts_per_tok", std::min<int64_t>(12, all), 1,
              std::min<int64_t>(all, kMaxExpertsPerToken)));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", 6.0, 0.0, 1e6));
  INLAY_ASSIGN_OR_RETURN(
      experts.moe.width,
      JsonInt(json, "moe_intermediate_size", 2048, 1, kMaxHidden));
  experts.moe.routing.num_experts = static_cast<int>(count);
  experts.moe.routing.top_k = static_cast<int>(top_k);
  experts.moe.routing.scale = static_cast<float>(scale);
  return experts;
}

absl::StatusOr<LatentConfig> ReadLongcatLatent(const Json& json,
                                               int num_heads) {
  LatentConfig defaults;
  defaults.theta = 1e7;
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, num_heads, defaults));
  if (latent.query_rank == 0) {
    return absl::UnimplementedError(
        "config.json: q_lora_rank is null; supported here are numbers");
  }
  const int64_t whole = int64_t{latent.key_dim} + latent.rope_dim;
  INLAY_ASSIGN_OR_RETURN(const int64_t query_dim,
                         JsonInt(json, "qk_head_dim", whole, 1, kMaxHeadDim));
  if (query_dim != whole) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: qk_head_dim is %d; qk_nope_head_dim and qk_rope_head_dim "
        "are %d together",
        query_dim, whole));
  }
  return latent;
}

MoeSpec Mixture(const DecoderConfig& config, const LongcatExperts& experts,
                const std::string& prefix) {
  MoeSpec spec =
      LlamaStyleMoe(config, experts.moe, prefix, "router.classifier", false);
  spec.routing.num_experts += static_cast<int>(experts.num_identity);
  spec.router.n = spec.routing.num_experts;
  spec.correction = prefix + "router.e_score_correction_bias";
  return spec;
}

// Queries and latents are as long as if their ranks were hidden_size.
LatentAttentionSpec Attention(const DecoderConfig& config,
                              const LatentConfig& latent, const RopeSpec& rope,
                              const std::string& prefix,
                              std::string_view part) {
  LatentAttentionSpec spec =
      RotatedLatentAttention(config, latent, rope, prefix, part);
  const auto longer = [&](int64_t rank) {
    return std::sqrt(static_cast<float>(config.hidden_size) /
                     static_cast<float>(rank));
  };
  spec.scale *= longer(latent.query_rank);
  spec.norm.factor = longer(latent.rank);
  return spec;
}

LayerSpec Layer(const DecoderConfig& config, const LatentConfig& latent,
                const RopeSpec& rope, const LongcatExperts& experts,
                const std::string& prefix) {
  LayerSpec layer;
  const auto add = [&](const std::string& norm, PartSpec part) {
    BlockSpec& block = layer.blocks.emplace_back();
    block.pre_norm = {NormKind::kRms, prefix + norm, config.norm_epsilon};
    block.part = std::move(part);
  };
  const auto mlp = [&](const std::string& part) {
    return SharedExpert(config, prefix + part, config.intermediate_size);
  };
  add("input_layernorm.0",
      Attention(config, latent, rope, prefix, "self_attn.0."));
  add("post_attention_layernorm.0", Mixture(config, experts, prefix + "mlp."));
  layer.blocks.back().deferred = true;
  add("post_attention_layernorm.0", mlp("mlps.0."));
  add("input_layernorm.1",
      Attention(config, latent, rope, prefix, "self_attn.1."));
  add("post_attention_layernorm.1", mlp("mlps.1."));
  return layer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLongcatFlash(const Json& own,
                                                        ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const Json json, InUsualKeys(own));
  INLAY_RETURN_IF_ERROR(ExpectPublished(json));
  DecoderDefaults defaults;
  defaults.vocab_size = 131072;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 12288;
  defaults.num_layers = 28;
  defaults.num_heads = 64;
  defaults.head_dim = 64;  // not used: latent attention has its own
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const LongcatExperts experts,
                         ReadLongcatExperts(json));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLongcatLatent(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadLatentRope(json, config, latent));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(Layer(config, latent, rope, experts, LayerPrefix(i)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
