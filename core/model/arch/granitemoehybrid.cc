// Granite 4 (IBM): Mamba 2 mixers, attention in few layers, mixtures of experts
// with a shared one or the shared MLP alone; multipliers. And Granite 3 with
// experts: attention in all layers, and no shared expert, or one. Source of
// names and defaults: transformers' GraniteMoeHybridConfig, GraniteMoeConfig
// and GraniteMoeSharedConfig.
#include <algorithm>

#include "core/model/arch.h"
#include "core/model/arch/granite_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/mamba_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What a family assumes where config.json is silent, or whatever it says.
struct GraniteDefaults {
  bool is_hybrid = true;  // or all layers have attention and rope
  int64_t shared_width = 1024;
  bool windows = false;  // ReadGraniteWindows
  std::string_view router = "router.layer";
};

// Which layers have attention; the names of kinds changed once.
absl::StatusOr<std::vector<bool>> GraniteAttentionLayers(
    const Json& json, const GraniteDefaults& defaults, int num_layers) {
  std::vector<bool> layers(static_cast<size_t>(num_layers),
                           !defaults.is_hybrid);
  if (!defaults.is_hybrid) return layers;
  const Json* types = JsonFind(json, "layer_types");
  if (types == nullptr) types = JsonFind(json, "layers_block_type");
  if (types == nullptr) return layers;
  const auto attends = [](const Json& type) {
    return type == "attention" || type == "full_attention";
  };
  const auto is_known = [&](const Json& type) {
    return attends(type) || type == "mamba" || type == "linear_attention";
  };
  if (!types->is_array() || types->size() != layers.size() ||
      !std::all_of(types->begin(), types->end(), is_known)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: layer_types is %s; it must be an array of %d times "
        "\"mamba\" or \"attention\"",
        ShownJson(*types), num_layers));
  }
  for (size_t i = 0; i < layers.size(); ++i) layers[i] = attends((*types)[i]);
  return layers;
}

struct GraniteFactors {
  float embedding = 1, logits = 1, residual = 1, attention = 1;
};

absl::StatusOr<GraniteFactors> ReadGraniteFactors(const Json& json) {
  GraniteFactors factors;
  const std::pair<const char*, float*> members[] = {
      {"embedding_multiplier", &factors.embedding},
      {"residual_multiplier", &factors.residual},
      {"attention_multiplier", &factors.attention}};
  for (const auto& [key, member] : members) {
    INLAY_ASSIGN_OR_RETURN(const double value,
                           JsonNumber(json, key, 1.0, -1e6, 1e6));
    *member = static_cast<float>(value);
  }
  INLAY_ASSIGN_OR_RETURN(const double divisor,
                         JsonNumber(json, "logits_scaling", 1.0, 1e-6, 1e6));
  factors.logits = static_cast<float>(1.0 / divisor);
  return factors;
}

struct GraniteExperts {
  int64_t count = 0;         // 0: the shared MLP alone
  int64_t shared_width = 0;  // 0: the experts alone
  bool shared_apart = false;
  MoeConfig moe;
};

// One layer gives gate and up; in GGUF files they are apart.
MlpSpec GraniteSharedMlp(const DecoderConfig& config,
                         const GraniteExperts& experts,
                         const std::string& prefix) {
  const int64_t width = experts.shared_width;
  MlpSpec mlp;
  mlp.width = width;
  mlp.activation = config.activation;
  mlp.gated = true;
  mlp.input = {
      {prefix + "shared_mlp.input_linear", 2 * width, config.hidden_size}};
  if (experts.shared_apart) {
    mlp.input = {{prefix + "shared_mlp.gate_proj", width, config.hidden_size},
                 {prefix + "shared_mlp.up_proj", width, config.hidden_size}};
  }
  mlp.output = {prefix + "shared_mlp.output_linear", config.hidden_size, width};
  return mlp;
}

absl::StatusOr<GraniteExperts> ReadGraniteExperts(
    const Json& json, const GraniteDefaults& defaults) {
  GraniteExperts experts;
  INLAY_ASSIGN_OR_RETURN(experts.count,
                         JsonInt(json, "num_local_experts", 8,
                                 defaults.is_hybrid ? 0 : 1, kMaxExperts));
  INLAY_ASSIGN_OR_RETURN(
      experts.shared_width,
      JsonInt(json, "shared_intermediate_size", defaults.shared_width,
              experts.count == 0 ? 1 : 0, kMaxHidden));
  // No published key: core/formats/gguf_linear.h sets it.
  INLAY_ASSIGN_OR_RETURN(experts.shared_apart,
                         JsonBool(json, "shared_mlp_apart", false));
  if (experts.count == 0) return experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe, ReadMoeConfig(json, "intermediate_size", {8, 2, 32, true}));
  experts.moe.routing.normalised = true;
  return experts;
}

PartSpec GraniteMlp(const DecoderConfig& config, const GraniteExperts& experts,
                    const std::string& prefix, std::string_view router) {
  MlpSpec shared = GraniteSharedMlp(config, experts, prefix);
  if (experts.count == 0) return shared;
  MoeSpec moe = LlamaStyleMoe(config, experts.moe, prefix + "block_sparse_moe.",
                              router, false);
  if (experts.shared_width > 0) moe.shared = std::move(shared);
  return moe;
}

absl::StatusOr<MambaSpec> GraniteMamba(const Json& json,
                                       const DecoderConfig& config,
                                       const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(json, "mamba_expand", 2, 1, 64));
  INLAY_ASSIGN_OR_RETURN(
      MambaSpec mamba,
      ReadMamba(json, MambaKeys(), config.hidden_size,
                expand * config.hidden_size, prefix + "mamba"));
  mamba.norm = {NormKind::kRms, prefix + "mamba.norm", config.norm_epsilon};
  mamba.norm_groups = mamba.num_groups;
  return mamba;
}

absl::StatusOr<DecoderSpec> GraniteMoeSpec(const Json& json,
                                           const GraniteDefaults& family) {
  DecoderDefaults defaults;
  defaults.max_positions = 2048;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<bool> attends,
      GraniteAttentionLayers(json, family, config.num_layers));
  if (std::find(attends.begin(), attends.end(), false) != attends.end()) {
    INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  }
  INLAY_ASSIGN_OR_RETURN(const GraniteFactors factors,
                         ReadGraniteFactors(json));
  INLAY_ASSIGN_OR_RETURN(const GraniteExperts experts,
                         ReadGraniteExperts(json, family));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      const std::string positions,
      family.is_hybrid ? JsonString(json, "position_embedding_type", "nope")
                       : absl::StatusOr<std::string>("rope"));
  INLAY_ASSIGN_OR_RETURN(
      const GraniteSight sight,
      family.windows ? ReadGraniteWindows(json, config)
                     : ReadGraniteSight(json, config, positions == "rope"));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = sight.max_positions;
  spec.ropes = sight.ropes;
  spec.embedding_scale = factors.embedding;
  spec.logit_scale = factors.logits;
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const auto block = [&](const char* norm, PartSpec part) {
      return BlockSpec{.pre_norm = NormSpec{NormKind::kRms, prefix + norm,
                                            config.norm_epsilon},
                       .scale = factors.residual,
                       .part = std::move(part)};
    };
    PartSpec mixer;
    if (attends[static_cast<size_t>(i)]) {
      AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
      sight.Apply(i, prefix, &attention);
      attention.scale = factors.attention;
      mixer = std::move(attention);
    } else {
      INLAY_ASSIGN_OR_RETURN(mixer, GraniteMamba(json, config, prefix));
    }
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(block("input_layernorm", std::move(mixer)));
    layer.blocks.push_back(
        block("post_attention_layernorm",
              GraniteMlp(config, experts, prefix, family.router)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGraniteMoeHybrid(const Json& config,
                                                            ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GraniteMoeSpec(config, {}));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeGraniteMoe(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(
      const DecoderSpec spec,
      GraniteMoeSpec(config, {.is_hybrid = false, .shared_width = 0}));
  return BuildDecoder(spec, build);
}

// Its router's name, too, is another.
absl::StatusOr<std::unique_ptr<Model>> MakeGraniteMoeSwa(const Json& config,
                                                         ModelBuild& build) {
  const GraniteDefaults family = {.is_hybrid = false,
                                  .shared_width = 0,
                                  .windows = true,
                                  .router = "router"};
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         GraniteMoeSpec(config, family));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
