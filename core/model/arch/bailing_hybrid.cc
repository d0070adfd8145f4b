// Ling 3 (InclusionAI, 2026): Kimi delta attention with bounded decays and
// without low ranks, latent attention with gates of heads at the end of every
// group of layers, DeepSeek-V3's mixtures of experts, all under Ling 2's names.
// Source of names and defaults: transformers' BailingHybridConfig, and
// config.json of published files.
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// DeepSeek's keys for Ling's. Latent attention rotates all of qk_rope_head_dim,
// whatever published files say besides.
Json BailingInDeepseeksKeys(const Json& own) {
  Json json =
      WithUsualNames(own, {{"model_max_length", "max_position_embeddings"},
                           {"moe_renormalize", "norm_topk_prob"},
                           {"num_expert_group", "n_group"},
                           {"num_experts_per_token", "num_experts_per_tok"},
                           {"num_shared_experts", "n_shared_experts"}});
  constexpr char kShare[] = "partial_rotary_factor";
  json.erase(kShare);
  for (const char* ropes : {"rope_parameters", "rope_scaling"}) {
    const auto found = json.find(ropes);
    if (found != json.end() && found->is_object()) found->erase(kShare);
  }
  // Not compressed where nothing is said.
  if (!json.contains("q_lora_rank")) json["q_lora_rank"] = nullptr;
  return json;
}

// What published code has ways for and no published file asks for.
absl::Status ExpectPublished(const Json& json) {
  for (const char* key :
       {"use_kda_lora", "use_mla_nope", "use_nGPT", "use_bias", "use_qkv_bias",
        "value_norm", "up_proj_norm", "scale_router_input", "norm_head",
        "pregate_inference", "tie_word_embeddings"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, false));
  }
  for (const char* key :
       {"no_kda_lora", "rope_interleave", "moe_router_enable_expert_bias"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, true));
  }
  INLAY_RETURN_IF_ERROR(
      ExpectName(json, "gated_attention_proj_granularity_type", "head_wise"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "score_function", "sigmoid"));
  for (const char* key :
       {"expert_swiglu_limit_list", "share_expert_swiglu_limit_list"}) {
    if (JsonFind(json, key) == nullptr) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is given; supported here is null", key));
  }
  return absl::OkStatus();
}

// Which layers have latent attention.
absl::StatusOr<std::vector<bool>> ReadAttentionLayers(const Json& json,
                                                      int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> attends,
                         ReadLayerKinds(json, "layer_types", num_layers,
                                        "full_attention", "linear_attention"));
  if (!attends.empty()) return attends;
  INLAY_ASSIGN_OR_RETURN(const int64_t group,
                         JsonInt(json, "layer_group_size", 6, 1, kMaxLayers));
  // Published code and transformers differ.
  if (num_layers % group != 0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: layer_group_size is %d and there are %d layers; without "
        "layer_types the last group must be whole",
        group, num_layers));
  }
  for (int i = 0; i < num_layers; ++i) {
    attends.push_back((i + 1) % group == 0);
  }
  return attends;
}

// The sizes of delta attention, and names of layer 0. Keys as published, or, of
// the same, as transformers writes them.
absl::StatusOr<DeltaSpec> ReadDelta(const Json& json) {
  const Json named = WithUsualNames(
      json, {{"linear_num_heads", "num_attention_heads"},
             {"linear_head_dim", "head_dim"},
             {"linear_conv_kernel_dim", "short_conv_kernel_size"}});
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(named, "num_attention_heads", 32, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(const int64_t head_dim,
                         JsonInt(named, "head_dim", 128, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(named, "short_conv_kernel_size", 4, 2, 64));
  if (heads * head_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %d heads of head_dim %d; together they may be %d wide",
        heads, head_dim, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(const bool bounded,
                         JsonFlag(json, "kda_safe_gate", true));
  DeltaSpec delta;
  delta.num_heads = delta.num_key_heads = static_cast<int>(heads);
  delta.key_dim = delta.value_dim = static_cast<int>(head_dim);
  delta.num_taps = static_cast<int>(taps);
  delta.decays_channels = true;
  if (bounded) {
    INLAY_ASSIGN_OR_RETURN(
        const double bound,
        JsonNumber(json, "kda_lower_bound", -5.0, -1e3, -1e-3));
    delta.decay_bound = static_cast<float>(bound);
  }
  delta.gate = GateFunction::kSigmoid;
  return delta;
}

// transformers writes latent attention's name for both kinds' outputs.
std::string DeltaOutput(const std::string& name, const ModelBuild& build) {
  const std::string dense = name + "dense";
  return build.weights.Has(dense + ".weight") ? dense : name + "o_proj";
}

DeltaSpec Delta(DeltaSpec delta, const DecoderConfig& config,
                const std::string& name, const ModelBuild& build) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = delta.key_width();
  delta.qkvz = {{name + "q_proj", width, hidden},
                {name + "k_proj", width, hidden},
                {name + "v_proj", width, hidden},
                {name + "g_proj", width, hidden}};
  delta.ba = {{name + "b_proj", delta.num_heads, hidden},
              {name + "f_proj", width, hidden}};
  delta.convs = {name + "q_conv1d", name + "k_conv1d", name + "v_conv1d"};
  delta.a_log = name + "A_log";
  delta.dt_bias = name + "dt_bias";
  delta.norm = {NormKind::kRms, name + "o_norm", config.norm_epsilon};
  delta.output = {DeltaOutput(name, build), hidden, width};
  return delta;
}

absl::StatusOr<DeepseekExperts> ReadBailingExperts(const Json& json,
                                                   int num_layers) {
  DeepseekDefaults defaults;
  defaults.moe = {512, 8, 768, true};
  defaults.num_groups = 8;
  defaults.top_groups = 4;
  defaults.scale = 2.5;
  defaults.num_dense = 2;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, defaults));
  constexpr char kShared[] = "moe_shared_expert_intermediate_size";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared,
      JsonInt(json, kShared, experts.moe.width, 1, kMaxHidden));
  if (shared != experts.moe.width) {
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is %d; supported here is moe_intermediate_size, %d",
        kShared, shared, experts.moe.width));
  }
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  return experts;
}

absl::StatusOr<DecoderConfig> ReadBailingConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 157184;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6144;
  defaults.num_layers = 42;
  defaults.head_dim = 64;  // not used: both kinds of layers have their own
  defaults.max_positions = 262144;
  return ReadDecoderConfig(json, defaults);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBailingHybrid(const Json& own,
                                                         ModelBuild& build) {
  const Json json = BailingInDeepseeksKeys(own);
  INLAY_RETURN_IF_ERROR(ExpectPublished(json));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadBailingConfig(json));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                         ReadAttentionLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const DeltaSpec delta, ReadDelta(json));
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadBailingExperts(json, config.num_layers));
  LatentConfig latent_defaults;
  latent_defaults.theta = 6e6;
  INLAY_ASSIGN_OR_RETURN(
      const LatentConfig latent,
      ReadLatentConfig(json, config.num_heads, latent_defaults));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadLatentRope(json, config, latent));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.embedding = "model.word_embeddings.weight";
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const std::string name = prefix + "attention.";
    PartSpec mixer = Delta(delta, config, name, build);
    if (attends[static_cast<size_t>(i)]) {
      LatentAttentionSpec attention =
          RotatedLatentAttention(config, latent, rope, prefix, "attention.");
      attention.gate =
          LinearSpec{name + "g_proj", config.num_heads, config.hidden_size};
      attention.output.name = name + "dense";
      mixer = std::move(attention);
    }
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.HasExperts(i)) {
      MoeSpec moe = DeepseekMoe(config, experts, prefix + "mlp.", true);
      moe.correction = prefix + "mlp.gate.expert_bias";
      mlp = std::move(moe);
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          std::move(mixer), std::move(mlp)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
