// Gemma 4, text: sandwich norms, window layers and full ones with another head
// size and proportional rope, norms of q, k and v in place of a scale, a factor
// a layer. Some models have inputs per layer and last layers that read the keys
// and values of earlier ones; others full layers whose values are made of keys,
// and experts beside each MLP. Source of names, defaults and semantics:
// transformers' Gemma4TextConfig and its modules.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Indices into DecoderSpec::ropes.
constexpr int kGemma4FullRope = 0;
constexpr int kGemma4WindowRope = 1;
constexpr int64_t kPattern = 6;

struct Gemma4Layer {
  bool slides = false;
  int head_dim = 0;
  int num_kv_heads = 0;
  int kv_source = -1;  // AttentionSpec
};

struct Gemma4Config {
  DecoderConfig decoder;
  std::vector<Gemma4Layer> layers;
  int window = 0;
  bool bias = false;
  bool keys_as_values = false;  // of full layers
  bool wide_mlps = false;       // of layers without keys and values
  int64_t per_layer_width = 0;  // 0: none
  float softcap = 0.0f;         // 0: none
  std::optional<MoeConfig> moe;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

DecoderDefaults Gemma4Defaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 262144;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.num_layers = 30;
  defaults.num_heads = 8;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 256;
  defaults.max_positions = 131072;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.activation_key = "hidden_activation";
  defaults.tie_embeddings = true;
  return defaults;
}

// What `json`, config.json or one of its per_layer_config, says of a layer.
absl::Status ReadHeads(const Json& json, std::string_view dim_key,
                       std::string_view kv_key, int num_heads,
                       Gemma4Layer* layer) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(json, dim_key, layer->head_dim, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t kv_heads,
      JsonInt(json, kv_key, layer->num_kv_heads, 1, kMaxHeads));
  INLAY_RETURN_IF_ERROR(CheckHeads(num_heads, kv_heads));
  if (num_heads * head_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %d heads of dimension %d in some layer; all heads "
        "together may have at most %d",
        num_heads, head_dim, kMaxHidden));
  }
  layer->head_dim = static_cast<int>(head_dim);
  layer->num_kv_heads = static_cast<int>(kv_heads);
  return absl::OkStatus();
}

// Of full layers by global_head_dim and num_global_key_value_heads, or layer by
// layer.
absl::Status ReadLayerHeads(const Json& json, Gemma4Config* config) {
  const DecoderConfig& decoder = config->decoder;
  const Json* own = JsonFind(json, "per_layer_config");
  if (own != nullptr && !own->is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: per_layer_config is %s; it must be an object",
        own->type_name()));
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    Gemma4Layer& layer = config->layers[i];
    layer.head_dim = decoder.head_dim;
    layer.num_kv_heads = decoder.num_kv_heads;
    if (own == nullptr) {
      if (layer.slides) continue;
      constexpr int kGlobalHeadDim = 512;
      layer.head_dim = kGlobalHeadDim;
      INLAY_RETURN_IF_ERROR(ReadHeads(json, "global_head_dim",
                                      config->keys_as_values
                                          ? "num_global_key_value_heads"
                                          : "num_key_value_heads",
                                      decoder.num_heads, &layer));
    } else if (const Json* json_layer =
                   JsonFind(*own, FormattedString("%d", i));
               json_layer != nullptr) {
      INLAY_RETURN_IF_ERROR(ReadHeads(*json_layer, "head_dim",
                                      "num_key_value_heads", decoder.num_heads,
                                      &layer));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> HeadDimOf(const Gemma4Config& config, bool slides) {
  int head_dim = 0;
  for (const Gemma4Layer& layer : config.layers) {
    if (layer.slides != slides) continue;
    if (head_dim != 0 && layer.head_dim != head_dim) {
      return absl::UnimplementedError(FormattedString(
          "config.json: per_layer_config has heads of %d and of %d dimensions "
          "in layers of one type; supported is one size",
          head_dim, layer.head_dim));
    }
    head_dim = layer.head_dim;
  }
  // No such layers: the rope is not used.
  return head_dim == 0 ? config.decoder.head_dim : head_dim;
}

absl::Status ReadGemma4Ropes(const Json& json, Gemma4Config* config) {
  DecoderConfig decoder = config->decoder;
  INLAY_ASSIGN_OR_RETURN(decoder.head_dim, HeadDimOf(*config, true));
  INLAY_ASSIGN_OR_RETURN(
      config->window_rope,
      ReadSlidingRope(json, decoder, "rope_local_base_freq", 10000.0));
  INLAY_ASSIGN_OR_RETURN(decoder.head_dim, HeadDimOf(*config, false));
  Json full = json;
  if (JsonFind(json, "rope_parameters") == nullptr) {
    full["rope_parameters"] = {{"rope_type", "proportional"},
                               {"partial_rotary_factor", 0.25}};
  }
  INLAY_ASSIGN_OR_RETURN(
      config->full_rope,
      ReadRope(full, decoder, {.theta = 1e6}, "full_attention"));
  return absl::OkStatus();
}

absl::Status ReadSharedLayers(const Json& json, Gemma4Config* config) {
  std::vector<bool> sliding;
  for (const Gemma4Layer& layer : config->layers) {
    sliding.push_back(layer.slides);
  }
  INLAY_ASSIGN_OR_RETURN(const std::vector<int> sources,
                         ReadKvSources(json, sliding, 0));
  for (size_t i = 0; i < sources.size(); ++i) {
    Gemma4Layer& layer = config->layers[i];
    layer.kv_source = sources[i];
    if (layer.kv_source < 0) continue;
    const auto source = static_cast<size_t>(layer.kv_source);
    layer.num_kv_heads = config->layers[source].num_kv_heads;
  }
  return absl::OkStatus();
}

absl::StatusOr<MoeConfig> ReadGemma4Moe(const Json& json) {
  MoeConfig moe;
  for (const char* key :
       {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    if (JsonFind(json, key) != nullptr) continue;
    return absl::InvalidArgumentError(FormattedString(
        "config.json: enable_moe_block is true and there is no %s", key));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t experts,
                         JsonInt(json, "num_experts", 0, 1, kMaxExperts));
  INLAY_RETURN_IF_ERROR(CheckNumExperts(json, experts));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t top_k,
      JsonInt(json, "top_k_experts", 0, 1,
              std::min<int64_t>(experts, kMaxExpertsPerToken)));
  INLAY_ASSIGN_OR_RETURN(
      moe.width, JsonInt(json, "moe_intermediate_size", 0, 1, kMaxHidden));
  moe.routing.num_experts = static_cast<int>(experts);
  moe.routing.top_k = static_cast<int>(top_k);
  moe.routing.normalised = true;
  moe.routing.scales_experts = true;
  return moe;
}

absl::Status ReadPerLayerInputs(const Json& json, Gemma4Config* config) {
  const DecoderConfig& decoder = config->decoder;
  INLAY_ASSIGN_OR_RETURN(config->per_layer_width,
                         JsonInt(json, "hidden_size_per_layer_input", 256, 0,
                                 kMaxHidden / decoder.num_layers));
  if (config->per_layer_width == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const int64_t rows,
                         JsonInt(json, "vocab_size_per_layer_input",
                                 decoder.vocab_size, 1, kMaxVocab));
  if (rows == decoder.vocab_size) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: vocab_size_per_layer_input is %d with vocab_size %d; "
      "supported are equal ones",
      rows, decoder.vocab_size));
}

// "vision" concerns images only.
absl::Status CheckCausal(const Json& json) {
  const Json* both_ways = JsonFind(json, "use_bidirectional_attention");
  if (both_ways == nullptr || *both_ways == "vision" || *both_ways == false) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "config.json: use_bidirectional_attention is %s; only causal attention "
      "is supported",
      ShownJson(*both_ways)));
}

absl::StatusOr<Gemma4Config> ReadGemma4Config(const Json& json) {
  Gemma4Config config;
  INLAY_RETURN_IF_ERROR(CheckCausal(json));
  INLAY_ASSIGN_OR_RETURN(config.decoder,
                         ReadDecoderConfig(json, Gemma4Defaults()));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadSlidingPattern(json, num_layers, kPattern));
  for (const bool slides : sliding) config.layers.push_back({slides});
  // Whatever layer_types says, as in the reference.
  config.layers.back().slides = false;
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 512));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.keys_as_values,
                         JsonBool(json, "attention_k_eq_v", false));
  INLAY_ASSIGN_OR_RETURN(config.wide_mlps,
                         JsonBool(json, "use_double_wide_mlp", false));
  INLAY_ASSIGN_OR_RETURN(const std::optional<double> softcap,
                         ReadOptionalNumber(json, "final_logit_softcapping",
                                            std::nullopt, 1e-6, 1e9));
  config.softcap = static_cast<float>(softcap.value_or(0.0));
  INLAY_RETURN_IF_ERROR(ReadLayerHeads(json, &config));
  INLAY_RETURN_IF_ERROR(ReadSharedLayers(json, &config));
  INLAY_RETURN_IF_ERROR(ReadGemma4Ropes(json, &config));
  INLAY_RETURN_IF_ERROR(ReadPerLayerInputs(json, &config));
  INLAY_ASSIGN_OR_RETURN(const bool experts,
                         JsonBool(json, "enable_moe_block", false));
  if (experts) {
    INLAY_ASSIGN_OR_RETURN(config.moe, ReadGemma4Moe(json));
  }
  return config;
}

AttentionSpec Gemma4Attention(const Gemma4Config& config,
                              const Gemma4Layer& layer,
                              const std::string& prefix) {
  DecoderConfig heads = config.decoder;
  heads.head_dim = layer.head_dim;
  heads.num_kv_heads = layer.num_kv_heads;
  AttentionSpec attention =
      LlamaStyleAttention(heads, prefix, config.bias, config.bias);
  AddHeadNorms(heads, prefix, NormKind::kRms, &attention);
  attention.scale = 1.0f;
  attention.window = layer.slides ? config.window : 0;
  attention.rope = layer.slides ? kGemma4WindowRope : kGemma4FullRope;
  attention.kv_source = layer.kv_source;
  if (layer.kv_source >= 0) {
    attention.qkv.resize(1);
    attention.k_norm = {};
    return attention;
  }
  attention.v_norm = {NormKind::kRms, "", heads.norm_epsilon};
  attention.keys_as_values = config.keys_as_values && !layer.slides;
  if (attention.keys_as_values) attention.qkv.pop_back();
  return attention;
}

MlpMoeSpec Gemma4Experts(const Gemma4Config& config, const std::string& prefix,
                         MlpSpec mlp) {
  const DecoderConfig& decoder = config.decoder;
  const auto norm = [&](const char* name) {
    return NormSpec{NormKind::kRms, prefix + name, decoder.norm_epsilon};
  };
  MlpMoeSpec both;
  both.mlp_pre_norm = norm("pre_feedforward_layernorm");
  both.mlp_post_norm = norm("post_feedforward_layernorm_1");
  both.mlp = std::move(mlp);
  both.moe_pre_norm = norm("pre_feedforward_layernorm_2");
  both.moe_post_norm = norm("post_feedforward_layernorm_2");
  both.moe = LlamaStyleMoe(decoder, *config.moe, prefix, "router.proj", false);
  both.moe.router_norm = norm("router.scale");
  both.moe.router_norm.suffix = "";
  both.moe.router_scale =
      1.0f / std::sqrt(static_cast<float>(decoder.hidden_size));
  both.moe.expert_scales = prefix + "router.per_expert_scale";
  return both;
}

LayerSpec Gemma4LayerSpec(const Gemma4Config& config, int index) {
  const Gemma4Layer& layer = config.layers[static_cast<size_t>(index)];
  const std::string prefix = LayerPrefix(index);
  const auto norm = [&](const char* name) {
    return NormSpec{NormKind::kRms, prefix + name, config.decoder.norm_epsilon};
  };
  DecoderConfig widths = config.decoder;
  if (config.wide_mlps && layer.kv_source >= 0) widths.intermediate_size *= 2;
  MlpSpec mlp = LlamaStyleMlp(widths, prefix, false);
  LayerSpec spec;
  spec.scale = prefix + "layer_scalar";
  spec.blocks.push_back({.pre_norm = norm("input_layernorm"),
                         .post_norm = norm("post_attention_layernorm"),
                         .part = Gemma4Attention(config, layer, prefix)});
  BlockSpec& feed_forward = spec.blocks.emplace_back();
  feed_forward.post_norm = norm("post_feedforward_layernorm");
  if (config.moe.has_value()) {
    feed_forward.part = Gemma4Experts(config, prefix, std::move(mlp));
  } else {
    feed_forward.pre_norm = norm("pre_feedforward_layernorm");
    feed_forward.part = std::move(mlp);
  }
  if (config.per_layer_width > 0) {
    spec.blocks.push_back(
        {.post_norm = norm("post_per_layer_input_norm"),
         .part = GemmaPerLayer(config.decoder, config.per_layer_width, index,
                               prefix)});
  }
  return spec;
}

absl::StatusOr<DecoderSpec> Gemma4Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const Gemma4Config config, ReadGemma4Config(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.embedding_scale = std::sqrt(static_cast<float>(decoder.hidden_size));
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.final_softcap = config.softcap;
  spec.ropes = {config.full_rope, config.window_rope};
  if (config.per_layer_width > 0) {
    spec.per_layer_inputs =
        GemmaPerLayerInputs(decoder, config.per_layer_width);
  }
  for (int i = 0; i < decoder.num_layers; ++i) {
    spec.layers.push_back(Gemma4LayerSpec(config, i));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGemma4(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Gemma4Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
