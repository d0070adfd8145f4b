// Nemotron H (arXiv:2504.03624) and Nemotron 3: one mixer a layer, a Mamba 2
// one, attention without positions, an MLP or experts, both with a squared
// ReLU and no gate. Source of names and defaults: transformers'
// NemotronHConfig.
#include <algorithm>
#include <cmath>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/mamba_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::pair<char, std::string_view> kNemotronLayers[] = {
    {'M', "linear_attention"}, {'M', "mamba"}, {'*', "full_attention"},
    {'*', "attention"},        {'E', "moe"},   {'-', "mlp"}};

// Names that older files have, and the newer ones.
constexpr std::pair<const char*, const char*> kNemotronKeys[] = {
    {"mamba_n_groups", "n_groups"},
    {"mamba_d_conv", "conv_kernel"},
    {"mamba_dt_min", "time_step_min"},
    {"mamba_conv_bias", "use_conv_bias"}};

Json InNewerWords(const Json& older) {
  Json json = older;
  for (const auto& [old_key, key] : kNemotronKeys) {
    if (json.contains(old_key)) json[key] = json[old_key];
  }
  return json;
}

// One letter a layer, as hybrid_override_pattern has them.
absl::StatusOr<std::string> ReadNemotronLayers(const Json& json) {
  std::string pattern;
  const Json* list = JsonFind(json, "layers_block_type");
  if (list == nullptr) list = JsonFind(json, "layer_types");
  if (list != nullptr && list->is_array()) {
    for (const Json& name : *list) {
      const auto found =
          std::find_if(std::begin(kNemotronLayers), std::end(kNemotronLayers),
                       [&](const auto& kind) { return name == kind.second; });
      pattern += found == std::end(kNemotronLayers) ? '?' : found->first;
    }
  } else {
    INLAY_ASSIGN_OR_RETURN(pattern,
                           JsonString(json, "hybrid_override_pattern", "ME*-"));
  }
  const auto count = static_cast<int64_t>(pattern.size());
  if (count >= 1 && count <= kMaxLayers &&
      pattern.find_first_not_of("M*E-") == std::string::npos) {
    return pattern;
  }
  return absl::InvalidArgumentError(FormattedString(
      "config.json: hybrid_override_pattern (or layers_block_type) gives "
      "\"%s\"; it must be 1 to %d letters of M (Mamba), * (attention), E "
      "(experts) and - (MLP)",
      pattern.substr(0, 80), kMaxLayers));
}

struct NemotronConfig {
  DecoderConfig decoder;
  std::string layers;
  MoeConfig moe;
  int64_t shared_width = 0;
  int64_t latent = 0;  // what experts read; 0: what the router does
  bool attention_bias = false;
  bool mlp_bias = false;
  float least_step = 0.0f;
};

absl::Status ReadNemotronExperts(const Json& json, NemotronConfig& config) {
  if (JsonFind(json, "moe_latent_size") != nullptr) {
    INLAY_ASSIGN_OR_RETURN(config.latent,
                           JsonInt(json, "moe_latent_size", 0, 1, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(
      config.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {8, 2, 7688, true}));
  RoutingDesc& routing = config.moe.routing;
  INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                         JsonInt(json, "n_group", 1, 1, routing.num_experts));
  INLAY_ASSIGN_OR_RETURN(const int64_t top_groups,
                         JsonInt(json, "topk_group", 1, 1, groups));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", 1.0, 0.0, 1e6));
  INLAY_ASSIGN_OR_RETURN(config.shared_width,
                         JsonInt(json, "moe_shared_expert_intermediate_size",
                                 7688, 1, kMaxHidden));
  routing.score = RoutingScore::kSigmoid;
  routing.num_groups = static_cast<int>(groups);
  routing.top_groups = static_cast<int>(top_groups);
  routing.group_score = GroupScore::kTopTwo;
  routing.scale = static_cast<float>(scale);
  return absl::OkStatus();
}

absl::StatusOr<NemotronConfig> ReadNemotronConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 21504;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.activation = "relu2";
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation_key = "mlp_hidden_act";
  NemotronConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(config.layers, ReadNemotronLayers(json));
  INLAY_ASSIGN_OR_RETURN(config.attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.mlp_bias, JsonBool(json, "mlp_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "mamba_hidden_act"));
  INLAY_ASSIGN_OR_RETURN(const double least,
                         JsonNumber(json, "time_step_min", 0.001, 0.0, 1e6));
  config.least_step = static_cast<float>(least);
  if (config.layers.find('E') != std::string::npos) {
    INLAY_RETURN_IF_ERROR(ReadNemotronExperts(json, config));
  }
  return config;
}

// PREFIX.up_proj and .down_proj, over rows of `hidden`.
MlpSpec NemotronMlp(const NemotronConfig& config, int64_t hidden, int64_t width,
                    bool bias, const std::string& prefix) {
  MlpSpec mlp;
  mlp.width = width;
  mlp.activation = config.decoder.activation;
  mlp.input = {{prefix + ".up_proj", width, hidden, bias}};
  mlp.output = {prefix + ".down_proj", hidden, width, bias};
  return mlp;
}

MoeSpec NemotronExperts(const NemotronConfig& config,
                        const std::string& prefix) {
  const RoutingDesc& routing = config.moe.routing;
  const int64_t hidden = config.decoder.hidden_size;
  MoeSpec moe;
  moe.routing = routing;
  moe.router = {prefix + ".gate", routing.num_experts, hidden};
  if (config.latent > 0) {
    moe.latent_down = {prefix + ".fc1_latent_proj", config.latent, hidden,
                       config.mlp_bias};
    moe.latent_up = {prefix + ".fc2_latent_proj", hidden, config.latent,
                     config.mlp_bias};
  }
  moe.correction = prefix + ".gate.e_score_correction_bias";
  for (int e = 0; e < routing.num_experts; ++e) {
    moe.experts.push_back(NemotronMlp(
        config, config.latent > 0 ? config.latent : hidden, config.moe.width,
        false, FormattedString("%s.experts.%d", prefix, e)));
  }
  moe.shared = NemotronMlp(config, hidden, config.shared_width, config.mlp_bias,
                           prefix + ".shared_experts");
  return moe;
}

AttentionSpec NemotronAttention(const NemotronConfig& config,
                                const std::string& prefix) {
  const bool bias = config.attention_bias;
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, bias, bias);
  const char* const names[] = {".q_proj", ".k_proj", ".v_proj"};
  for (size_t i = 0; i < attention.qkv.size(); ++i) {
    attention.qkv[i].name = prefix + names[i];
  }
  attention.output.name = prefix + ".o_proj";
  attention.rope = -1;
  return attention;
}

absl::StatusOr<MambaSpec> NemotronMamba(const Json& json,
                                        const NemotronConfig& config,
                                        const std::string& prefix) {
  MambaKeys keys = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                    "ssm_state_size",  "conv_kernel",    "use_conv_bias",
                    "use_bias"};
  keys.default_head_dim = 64;
  keys.default_groups = 8;
  keys.default_state_size = 128;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, keys.heads, keys.default_heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(json, keys.head_dim, keys.default_head_dim, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(MambaSpec mamba,
                         ReadMamba(json, keys, config.decoder.hidden_size,
                                   heads * head_dim, prefix));
  mamba.norm = {NormKind::kRms, prefix + ".norm", config.decoder.norm_epsilon};
  mamba.norm_groups = mamba.num_groups;
  mamba.least_step = config.least_step;
  mamba.most_step = std::numeric_limits<float>::infinity();
  return mamba;
}

absl::StatusOr<DecoderSpec> NemotronHSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const NemotronConfig config, ReadNemotronConfig(json));
  const float epsilon = config.decoder.norm_epsilon;
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, NormKind::kRms);
  spec.optional_prefix = "backbone.";
  spec.embedding = "backbone.embeddings.weight";
  spec.final_norm.name = "backbone.norm_f";
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string layer = FormattedString("backbone.layers.%d.", i);
    const std::string prefix = layer + "mixer";
    PartSpec part;
    switch (config.layers[i]) {
      case 'M': {
        INLAY_ASSIGN_OR_RETURN(part, NemotronMamba(json, config, prefix));
        break;
      }
      case '*':
        part = NemotronAttention(config, prefix);
        break;
      case 'E':
        part = NemotronExperts(config, prefix);
        break;
      default:
        part = NemotronMlp(config, config.decoder.hidden_size,
                           config.decoder.intermediate_size, config.mlp_bias,
                           prefix);
    }
    spec.layers.emplace_back().blocks.push_back(
        {.pre_norm = NormSpec{NormKind::kRms, layer + "norm", epsilon},
         .part = std::move(part)});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeNemotronH(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         NemotronHSpec(InNewerWords(config)));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
