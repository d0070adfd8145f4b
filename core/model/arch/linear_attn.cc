// Plain linear attention (Katharopoulos et al., arXiv:2006.16236) as models of
// flash-linear-attention have it: no positions, a norm of each head, a gated
// MLP. Source of names, of defaults and of what is computed: LinearAttention,
// LinearAttentionConfig and GatedMLP there, as of August 2026. Files trained
// with norm_feature_map before September 2025 had another normaliser, whose
// keys were added up over heads.
//
// q is divided by the root of head_dim d there. Where outputs are normalised
// only the epsilon sees it, which is times that root here; where they are not,
// the norm of each head takes it out, with an epsilon times d.
#include <cmath>
#include <string>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of the normaliser, which config.json does not name.
constexpr float kNormaliserEpsilon = 1e-10f;

struct LinearAttnConfig {
  FeatureMap map = FeatureMap::kNone;
  bool normalised = false;
  bool norm_weights = true;
};

// The hybrids with attention in some layers, and what no map of this library
// makes.
absl::Status CheckLinearAttnSupported(const Json& json, int num_heads) {
  INLAY_ASSIGN_OR_RETURN(const bool norm_q, JsonBool(json, "norm_q", false));
  INLAY_ASSIGN_OR_RETURN(const bool norm_k, JsonBool(json, "norm_k", false));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t kv_heads,
      JsonInt(json, "num_kv_heads", num_heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(const std::string activation,
                         JsonString(json, "hidden_act", "swish"));
  const char* wrong =
      norm_q                  ? "norm_q is true; only false"
      : norm_k                ? "norm_k is true; only false"
      : kv_heads != num_heads ? "num_kv_heads is not num_heads; only an equal "
                                "one"
      : activation != "swish" ? "hidden_act is not swish; only that"
      : JsonFind(json, "attn") != nullptr ? "attn is there; only null"
      : JsonFind(json, "attnres_block_size") != nullptr
          ? "attnres_block_size is there; only null"
          : nullptr;
  if (wrong == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      FormattedString("config.json: %s is supported", wrong));
}

absl::StatusOr<LinearAttnConfig> ReadLinearAttn(const Json& json) {
  LinearAttnConfig config;
  INLAY_ASSIGN_OR_RETURN(
      const std::string map,
      JsonString(json, "feature_map", "elementwise_product"));
  if (map == "elu") {
    config.map = FeatureMap::kEluPlusOne;
  } else if (map == "relu") {
    config.map = FeatureMap::kRelu;
  } else if (map != "identity") {
    return absl::UnimplementedError(FormattedString(
        "config.json: feature_map is \"%s\", allowed: elu, relu, identity",
        map));
  }
  INLAY_ASSIGN_OR_RETURN(config.normalised,
                         JsonBool(json, "norm_feature_map", false));
  INLAY_ASSIGN_OR_RETURN(config.norm_weights,
                         JsonBool(json, "elementwise_affine", true));
  return config;
}

// Of all heads; as many keys as values.
absl::StatusOr<int64_t> ReadWidth(const Json& json, int64_t hidden,
                                  int num_heads) {
  INLAY_ASSIGN_OR_RETURN(const double keys,
                         JsonNumber(json, "expand_k", 1.0, 0.01, 64.0));
  INLAY_ASSIGN_OR_RETURN(const double values,
                         JsonNumber(json, "expand_v", 1.0, 0.01, 64.0));
  const auto width = static_cast<int64_t>(static_cast<double>(hidden) * keys);
  if (width != static_cast<int64_t>(static_cast<double>(hidden) * values)) {
    return absl::UnimplementedError(FormattedString(
        "config.json: expand_k is %g and expand_v %g, allowed: equal ones",
        keys, values));
  }
  if (width >= num_heads && width <= kMaxHidden && width % num_heads == 0) {
    return width;
  }
  return absl::InvalidArgumentError(FormattedString(
      "config.json: expand_k is %g with hidden_size %d, %d keys, allowed: a "
      "multiple of num_heads, %d, to %d",
      keys, hidden, width, num_heads, kMaxHidden));
}

// What GatedMLP is wide where config.json does not say it.
absl::StatusOr<int64_t> ReadMlpWidth(const Json& json, int64_t hidden) {
  INLAY_ASSIGN_OR_RETURN(const double ratio,
                         JsonNumber(json, "hidden_ratio", 4.0, 0.01, 64.0));
  const auto about =
      static_cast<int64_t>(static_cast<double>(hidden) * ratio * 2.0 / 3.0);
  return JsonInt(json, "intermediate_size", (about + 255) / 256 * 256, 1,
                 kMaxHidden);
}

LightningSpec LinearAttn(const DecoderConfig& config,
                         const LinearAttnConfig& attn,
                         const std::string& prefix) {
  LightningSpec spec;
  spec.num_heads = config.num_heads;
  spec.head_dim = config.head_dim;
  spec.feature_map = attn.map;
  spec.normalised = attn.normalised;
  const auto dim = static_cast<float>(config.head_dim);
  spec.normaliser_epsilon = kNormaliserEpsilon * std::sqrt(dim);
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    spec.qkv.push_back({prefix + name, spec.width(), config.hidden_size});
  }
  spec.output = {prefix + "o_proj", config.hidden_size, spec.width()};
  spec.norm = {NormKind::kRms, attn.norm_weights ? prefix + "norm" : "",
               config.norm_epsilon * (attn.normalised ? 1.0f : dim)};
  spec.norm_heads = true;
  return spec;
}

absl::StatusOr<DecoderSpec> LinearAttnSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.hidden_size = 2048;
  defaults.num_layers = 24;
  defaults.num_heads = 4;
  defaults.heads_key = "num_heads";
  defaults.epsilon_key = "norm_eps";
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(CheckLinearAttnSupported(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const LinearAttnConfig attn, ReadLinearAttn(json));
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         ReadWidth(json, config.hidden_size, config.num_heads));
  config.head_dim = static_cast<int>(width / config.num_heads);
  INLAY_ASSIGN_OR_RETURN(config.intermediate_size,
                         ReadMlpWidth(json, config.hidden_size));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.embedding = "model.embeddings.weight";
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec layer =
        LlamaStyleLayer(config, prefix, NormKind::kRms,
                        LinearAttn(config, attn, prefix + "attn."),
                        LlamaStyleMlp(config, prefix, false));
    layer.blocks[0].pre_norm.name = prefix + "attn_norm";
    layer.blocks[1].pre_norm.name = prefix + "mlp_norm";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLinearAttn(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, LinearAttnSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
