// Hunyuan (Tencent, 2025; A13B and the dense models of 0.5B to 7B): Llama whose
// q and k are normalised after rope; in A13B mixtures of experts by softmax
// beside a shared MLP in all layers. Source of names and defaults:
// transformers' HunYuanDenseV1Config and HunYuanMoEV1Config.
#include <utility>

#include "core/formats/ntk_alpha.h"
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A number, or a list of one for each layer.
absl::StatusOr<int64_t> ReadOfLayer(const Json& json, std::string_view key,
                                    int layer, int64_t fallback, int64_t max) {
  const Json* value = JsonFind(json, key);
  if (value == nullptr || !value->is_array()) {
    return JsonInt(json, key, fallback, 1, max);
  }
  const auto at = static_cast<size_t>(layer);
  if (at >= value->size()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s has %d numbers, allowed: one for each layer", key,
        value->size()));
  }
  const std::string name = FormattedString("%s[%d]", key, layer);
  return JsonInt(Json{{name, (*value)[at]}}, name, fallback, 1, max);
}

// What no published model of these has.
absl::Status CheckHunyuan(const Json& json) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_cla", false));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t skipped,
      JsonInt(json, "moe_layer_num_skipped", 0, 0, kMaxLayers));
  if (skipped == 0) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: moe_layer_num_skipped is %d; supported here is 0",
      skipped));
}

struct HunyuanParts {
  DecoderConfig config;
  bool bias = false;
  bool head_norms = true;
  DecoderSpec spec;

  AttentionSpec Attention(const std::string& prefix) const {
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    if (!head_norms) return attention;
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.q_norm.name = prefix + "self_attn.query_layernorm";
    attention.k_norm.name = prefix + "self_attn.key_layernorm";
    attention.norms_after_rope = true;
    return attention;
  }
};

absl::StatusOr<HunyuanParts> ReadHunyuan(const Json& json) {
  HunyuanParts out;
  DecoderDefaults defaults;
  defaults.vocab_size = 290943;
  defaults.norm_epsilon = 1e-5;
  INLAY_RETURN_IF_ERROR(CheckHunyuan(json));
  INLAY_ASSIGN_OR_RETURN(out.config, ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(out.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(out.head_norms, JsonBool(json, "use_qk_norm", true));
  INLAY_ASSIGN_OR_RETURN(const Json plain,
                         WithoutNtkAlpha(json, out.config.head_dim));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(plain, out.config, {}));
  out.spec = LlamaStyleDecoder(out.config, NormKind::kRms);
  out.spec.max_positions = UsablePositions(out.config.max_positions, rope);
  out.spec.ropes.push_back(rope);
  return out;
}

absl::StatusOr<MoeSpec> HunyuanMoe(const Json& json,
                                   const DecoderConfig& config, int layer) {
  MoeConfig moe;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t experts,
      ReadOfLayer(json, "num_experts", layer, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(CheckNumExperts(json, experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      ReadOfLayer(json, "moe_topk", layer, 1,
                  std::min<int64_t>(experts, kMaxExpertsPerToken)));
  const int64_t width = config.intermediate_size;
  INLAY_ASSIGN_OR_RETURN(moe.width, ReadOfLayer(json, "moe_intermediate_size",
                                                layer, width, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const int64_t shared,
                         ReadOfLayer(json, "num_shared_expert", layer, 1, 64));
  moe.routing.num_experts = static_cast<int>(experts);
  moe.routing.top_k = static_cast<int>(top_k);
  moe.routing.normalised = true;
  const std::string prefix = LayerPrefix(layer) + "mlp.";
  MoeSpec spec = LlamaStyleMoe(config, moe, prefix, "gate.wg", false);
  spec.shared = SharedExpert(config, prefix + "shared_mlp.", shared * width);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeHunyuan(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(HunyuanParts parts, ReadHunyuan(json));
  for (int i = 0; i < parts.config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    parts.spec.layers.push_back(LlamaStyleLayer(
        parts.config, prefix, NormKind::kRms, parts.Attention(prefix),
        LlamaStyleMlp(parts.config, prefix, false)));
  }
  return BuildDecoder(parts.spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeHunyuanMoe(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(HunyuanParts parts, ReadHunyuan(json));
  for (int i = 0; i < parts.config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    INLAY_ASSIGN_OR_RETURN(MoeSpec moe, HunyuanMoe(json, parts.config, i));
    parts.spec.layers.push_back(
        LlamaStyleLayer(parts.config, prefix, NormKind::kRms,
                        parts.Attention(prefix), std::move(moe)));
  }
  return BuildDecoder(parts.spec, build);
}

}  // namespace inlay
