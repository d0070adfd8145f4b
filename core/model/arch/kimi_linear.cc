// Kimi Linear (arXiv:2510.26692): Kimi delta attention in most layers, latent
// attention without positions in the others, and DeepSeek-V3's mixtures of
// experts under other names. Source of names and defaults: transformers'
// KimiLinearConfig.
#include <algorithm>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/delta_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// DeepSeek's keys for Kimi's.
constexpr std::pair<const char*, const char*> kKimiKeys[] = {
    {"max_position_embeddings", "model_max_length"},
    {"norm_topk_prob", "moe_renormalize"},
    {"n_group", "num_expert_group"},
    {"num_experts_per_tok", "num_experts_per_token"},
    {"n_shared_experts", "num_shared_experts"},
    {"scoring_func", "moe_router_activation_func"}};

Json InDeepseeksWords(const Json& kimi) {
  Json json = kimi;
  for (const auto& [key, own] : kKimiKeys) {
    if (json.contains(own)) json[key] = json[own];
  }
  // Not compressed where nothing is said.
  if (!json.contains("q_lora_rank")) json["q_lora_rank"] = nullptr;
  return json;
}

// Which layers have latent attention: layer_types; or full_attn_layers, which
// counts from 1; or every fourth but the first.
absl::StatusOr<std::vector<bool>> KimiAttentionLayers(const Json& json,
                                                      const Json& delta_config,
                                                      int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> attends,
                         ReadLayerKinds(json, "layer_types", num_layers,
                                        "full_attention", "linear_attention"));
  if (!attends.empty()) return attends;
  const Json* list = JsonFind(delta_config, "full_attn_layers");
  if (list == nullptr) {
    for (int i = 0; i < num_layers; ++i) {
      attends.push_back(i > 0 && i % 4 == 0);
    }
    return attends;
  }
  attends.assign(static_cast<size_t>(num_layers), false);
  const auto is_layer = [&](const Json& layer) {
    return layer.is_number_integer() && layer.get<int64_t>() >= 1 &&
           layer.get<int64_t>() <= num_layers;
  };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_layer)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: full_attn_layers is %s; it must be an array of layers "
        "from 1 to %d",
        ShownJson(*list), num_layers));
  }
  for (const Json& layer : *list) {
    attends[static_cast<size_t>(layer.get<int64_t>() - 1)] = true;
  }
  return attends;
}

absl::StatusOr<DeepseekExperts> ReadKimiExperts(const Json& json) {
  DeepseekDefaults defaults;
  defaults.moe = {256, 8, 1024, true};
  defaults.scale = 2.446;
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "sigmoid"));
  return ReadDeepseekExperts(json, defaults);
}

absl::StatusOr<DecoderConfig> ReadKimiConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 163840;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.num_layers = 27;
  defaults.head_dim = 64;  // not used: both kinds of layers have their own
  defaults.max_positions = 1048576;
  defaults.norm_epsilon = 1e-5;
  return ReadDecoderConfig(json, defaults);
}

absl::StatusOr<DecoderSpec> KimiLinearSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadKimiConfig(json));
  INLAY_ASSIGN_OR_RETURN(const Json delta_config, KimiDeltaConfig(json));
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<bool> attends,
      KimiAttentionLayers(json, delta_config, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const DeltaSpec delta,
                         ReadKimiDelta(json, delta_config, 32));
  if (std::find(attends.begin(), attends.end(), false) != attends.end()) {
    INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  }
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts, ReadKimiExperts(json));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse, ReadLayerKinds(json, "mlp_layer_types", config.num_layers,
                                     "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const bool no_positions,
                         JsonBool(json, "mla_use_nope", true));
  if (!no_positions) {
    return absl::UnimplementedError(
        "config.json: mla_use_nope is false; supported here is true");
  }
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    PartSpec mixer = KimiDelta(delta, config, prefix);
    if (attends[static_cast<size_t>(i)]) {
      mixer = LatentStyleAttention(config, latent, prefix);
    }
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (experts.HasExperts(i)) {
      mlp = DeepseekMoe(config, experts, prefix + "block_sparse_moe.", true,
                        {"w1", "w3", "w2"});
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          std::move(mixer), std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeKimiLinear(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         KimiLinearSpec(InDeepseeksWords(config)));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
