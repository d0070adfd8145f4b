// DBRX (Databricks, 2024): mixtures of experts by softmax, LayerNorms without
// biases, q, k and v side by side and cut off. Experts' tensors come apart in
// core/formats/expert_source.h.
#include <optional>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr float kDbrxEpsilon = 1e-5f;  // whatever config.json says

// An object of config.json, empty where it is absent.
Json Part(const Json& json, std::string_view key) {
  const Json* part = JsonFind(json, key);
  return part == nullptr ? Json::object() : *part;
}

// `attention`: attn_config, `ffn`: ffn_config.
absl::StatusOr<DecoderConfig> ReadDbrxConfig(const Json& json,
                                             const Json& attention,
                                             const Json& ffn) {
  Json named =
      WithUsualNames(json, {{"d_model", "hidden_size"},
                            {"n_layers", "num_hidden_layers"},
                            {"n_heads", "num_attention_heads"},
                            {"max_seq_len", "max_position_embeddings"}});
  DecoderDefaults defaults;
  defaults.hidden_size = 2048;
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  INLAY_ASSIGN_OR_RETURN(named["num_key_value_heads"],
                         JsonInt(attention, "kv_n_heads", 1, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(named["intermediate_size"],
                         JsonInt(ffn, "ffn_hidden_size", 3584, 1, kMaxHidden));
  const Json activation = Part(ffn, "ffn_act_fn");
  INLAY_ASSIGN_OR_RETURN(named["hidden_act"],
                         JsonString(activation, "name", "silu"));
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(named, defaults));
  config.norm_epsilon = kDbrxEpsilon;
  if (config.tie_embeddings) {
    return absl::UnimplementedError(
        "config.json: tie_word_embeddings is true; supported here is false");
  }
  return config;
}

absl::StatusOr<MoeConfig> ReadDbrxExperts(const Json& ffn,
                                          const DecoderConfig& config) {
  MoeConfig moe;
  INLAY_ASSIGN_OR_RETURN(const int64_t experts,
                         JsonInt(ffn, "moe_num_experts", 4, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(
      CheckNumExperts(Json{{"num_hidden_layers", config.num_layers}}, experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      JsonInt(ffn, "moe_top_k", 1, 1,
              std::min<int64_t>(experts, kMaxExpertsPerToken)));
  // Weights are divided by their norm of this order, by nothing where null.
  constexpr char kOrder[] = "moe_normalize_expert_weights";
  INLAY_ASSIGN_OR_RETURN(const std::optional<double> order,
                         ReadOptionalNumber(ffn, kOrder, 1.0, 0.0, 1e6));
  if (order.value_or(1.0) != 1.0) {
    return absl::UnimplementedError(
        FormattedString("config.json: %s is %g; supported here are 1 and null",
                        kOrder, *order));
  }
  moe.routing.num_experts = static_cast<int>(experts);
  moe.routing.top_k = static_cast<int>(top_k);
  moe.routing.normalised = order.has_value();
  moe.width = config.intermediate_size;
  return moe;
}

LayerSpec DbrxLayer(const DecoderConfig& config, const MoeConfig& moe,
                    int layer, float clip) {
  const std::string prefix = FormattedString("transformer.blocks.%d.", layer);
  const std::string first = prefix + "norm_attn_norm.";
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  const int64_t rows = attention.qkv[0].n + 2 * attention.qkv[1].n;
  attention.qkv = {{first + "attn.Wqkv", rows, config.hidden_size}};
  attention.output.name = first + "attn.out_proj";
  attention.clip = clip;
  LayerSpec spec = LlamaStyleLayer(
      config, prefix, NormKind::kLayerNoBias, std::move(attention),
      LlamaStyleMoe(config, moe, prefix + "ffn.", "router.layer", false,
                    {"w1", "v1", "w2"}));
  spec.blocks[0].pre_norm.name = first + "norm_1";
  spec.blocks[1].pre_norm.name = first + "norm_2";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDbrx(const Json& json,
                                                ModelBuild& build) {
  const Json attention = Part(json, "attn_config");
  const Json ffn = Part(json, "ffn_config");
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDbrxConfig(json, attention, ffn));
  INLAY_ASSIGN_OR_RETURN(const MoeConfig moe, ReadDbrxExperts(ffn, config));
  INLAY_ASSIGN_OR_RETURN(const float clip, ReadClip(attention));
  // Where published files have it; transformers 5.24 takes 10,000 for those.
  RopeDefaults rope_defaults;
  INLAY_ASSIGN_OR_RETURN(
      rope_defaults.theta,
      JsonNumber(attention, "rope_theta", rope_defaults.theta, 1.0, 1e15));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, rope_defaults));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerNoBias);
  spec.optional_prefix = "transformer.";
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding = "transformer.wte.weight";
  spec.final_norm.name = "transformer.norm_f";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(DbrxLayer(config, moe, i, clip));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
