// LFM2 (Liquid AI): short gated convolutions, every few layers attention with
// norms of q and k; also with mixtures of experts behind a few dense layers.
// LFM3: longer convolutions, attention within windows on some layers, gates of
// heads, norms on both sides of each part. Source of names and defaults:
// transformers' Lfm2Config, Lfm2MoeConfig and Lfm3Config (5.24).
#include <algorithm>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What the MLP is wide, which older files say in a roundabout way.
absl::StatusOr<int64_t> Lfm2MlpWidth(const Json& json, int64_t intermediate) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t width,
      JsonInt(json, "block_ff_dim", intermediate, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const bool adjusts,
                         JsonBool(json, "block_auto_adjust_ff_dim", true));
  if (!adjusts) return width;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t multiple,
      JsonInt(json, "block_multiple_of", 256, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      const double factor,
      JsonNumber(json, "block_ffn_dim_multiplier", 1.0, 0.0, 64.0));
  const auto scaled =
      static_cast<int64_t>(factor * static_cast<double>(2 * width / 3));
  return std::max<int64_t>(1, (scaled + multiple - 1) / multiple) * multiple;
}

// Which layers have attention.
absl::StatusOr<std::vector<bool>> Lfm2AttentionLayers(const Json& json,
                                                      int num_layers) {
  const auto count = static_cast<size_t>(num_layers);
  std::vector<bool> layers(count, true);
  if (const Json* types = JsonFind(json, "layer_types"); types != nullptr) {
    const auto is_known = [](const Json& type) {
      return type == "conv" || type == "full_attention";
    };
    if (!types->is_array() || types->size() != count ||
        !std::all_of(types->begin(), types->end(), is_known)) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: layer_types is %s; it must be an array of %d times "
          "\"conv\" or \"full_attention\"",
          ShownJson(*types), num_layers));
    }
    for (size_t i = 0; i < count; ++i) layers[i] = (*types)[i] != "conv";
    return layers;
  }
  const Json* full = JsonFind(json, "full_attn_idxs");
  if (full == nullptr) return layers;
  layers.assign(count, false);
  const auto is_layer = [&](const Json& layer) {
    return layer.is_number_integer() && layer.get<int64_t>() >= 0 &&
           layer.get<int64_t>() < num_layers;
  };
  if (!full->is_array() || !std::all_of(full->begin(), full->end(), is_layer)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: full_attn_idxs is %s; it must be an array of layers from "
        "0 to %d",
        ShownJson(*full), num_layers - 1));
  }
  for (const Json& layer : *full) layers[layer.get<size_t>()] = true;
  return layers;
}

AttentionSpec Lfm2Attention(const DecoderConfig& config,
                            const std::string& prefix) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  const std::string name = prefix + "self_attn.";
  attention.output.name = name + "out_proj";
  attention.q_norm = {NormKind::kRms, name + "q_layernorm",
                      config.norm_epsilon};
  attention.k_norm = {NormKind::kRms, name + "k_layernorm",
                      config.norm_epsilon};
  return attention;
}

MlpSpec Lfm2Mlp(const DecoderConfig& config, const std::string& prefix) {
  MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
  mlp.input[0].name = prefix + "feed_forward.w1";
  mlp.input[1].name = prefix + "feed_forward.w3";
  mlp.output.name = prefix + "feed_forward.w2";
  return mlp;
}

struct Lfm2ConvConfig {
  int num_taps = 3;
  bool bias = false;
};

absl::StatusOr<Lfm2ConvConfig> ReadLfm2Conv(const Json& json,
                                            int64_t fallback = 3) {
  Lfm2ConvConfig conv;
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(json, "conv_L_cache", fallback, 2, 64));
  INLAY_ASSIGN_OR_RETURN(conv.bias, JsonBool(json, "conv_bias", false));
  conv.num_taps = static_cast<int>(taps);
  return conv;
}

ShortConvSpec Lfm2Conv(const Lfm2ConvConfig& config, int64_t hidden,
                       const std::string& prefix) {
  ShortConvSpec conv;
  conv.width = hidden;
  conv.num_taps = config.num_taps;
  conv.conv_bias = config.bias;
  conv.conv = prefix + "conv.conv";
  conv.input = {prefix + "conv.in_proj", 3 * hidden, hidden, config.bias};
  conv.output = {prefix + "conv.out_proj", hidden, hidden, config.bias};
  return conv;
}

absl::StatusOr<DecoderConfig> ReadLfm2Sizes(const Json& json,
                                            DecoderDefaults defaults) {
  defaults.vocab_size = 65536;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 128000;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  config.activation = Activation::kSilu;  // whatever hidden_act says
  // The older name wins.
  INLAY_ASSIGN_OR_RETURN(
      config.tie_embeddings,
      JsonBool(json, "tie_embedding", config.tie_embeddings));
  INLAY_ASSIGN_OR_RETURN(const double epsilon,
                         JsonNumber(json, "norm_eps", 1e-5, 0.0, 1.0));
  config.norm_epsilon = static_cast<float>(epsilon);
  return config;
}

absl::StatusOr<DecoderConfig> ReadLfm2Config(const Json& json) {
  DecoderDefaults defaults;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 12288;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config, ReadLfm2Sizes(json, defaults));
  INLAY_ASSIGN_OR_RETURN(config.intermediate_size,
                         Lfm2MlpWidth(json, config.intermediate_size));
  return config;
}

absl::StatusOr<DecoderConfig> ReadLfm2MoeConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 7168;
  return ReadLfm2Sizes(json, defaults);
}

// What comes after the mixers. num_dense: layers without experts, the first
// ones; all of them where there are no experts.
struct Lfm2Experts {
  MoeConfig moe;
  int64_t num_dense = kMaxLayers;
  bool corrected = false;
};

absl::StatusOr<Lfm2Experts> ReadLfm2Experts(const Json& json) {
  Lfm2Experts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {32, 4, 1792, true}));
  INLAY_ASSIGN_OR_RETURN(experts.num_dense,
                         JsonInt(json, "num_dense_layers", 2, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(experts.corrected,
                         JsonBool(json, "use_expert_bias", true));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", 1.0, 0.0, 1e6));
  experts.moe.routing.score = RoutingScore::kSigmoid;
  experts.moe.routing.scale = static_cast<float>(scale);
  return experts;
}

PartSpec Lfm2FeedForward(const DecoderConfig& config,
                         const Lfm2Experts& experts, int layer) {
  const std::string prefix = LayerPrefix(layer);
  if (layer < experts.num_dense) return Lfm2Mlp(config, prefix);
  const std::string name = prefix + "feed_forward.";
  MoeSpec moe = LlamaStyleMoe(config, experts.moe, name, "gate", false,
                              {"w1", "w3", "w2"});
  if (experts.corrected) moe.correction = name + "expert_bias";
  return moe;
}

absl::StatusOr<DecoderSpec> Lfm2Spec(const Json& json,
                                     const DecoderConfig& config,
                                     const Lfm2Experts& experts) {
  INLAY_ASSIGN_OR_RETURN(const Lfm2ConvConfig conv, ReadLfm2Conv(json));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                         Lfm2AttentionLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = 1000000.0}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.final_norm.name = "model.embedding_norm";
  spec.ropes.push_back(rope);
  const auto norm = [&](const std::string& name) {
    return NormSpec{NormKind::kRms, name, config.norm_epsilon};
  };
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    PartSpec part = Lfm2Conv(conv, config.hidden_size, prefix);
    if (attends[static_cast<size_t>(i)]) part = Lfm2Attention(config, prefix);
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = norm(prefix + "operator_norm"), .part = part});
    layer.blocks.push_back({.pre_norm = norm(prefix + "ffn_norm"),
                            .part = Lfm2FeedForward(config, experts, i)});
  }
  return spec;
}

enum class Lfm3Layer : uint8_t { kConv, kWindow, kFull };
constexpr int kLfm3FullRope = 0, kLfm3WindowRope = 1;

struct Lfm3Config {
  DecoderConfig decoder;
  Lfm2ConvConfig conv;
  std::vector<Lfm3Layer> layers;
  int window = 0;
  bool sandwich = true;
  bool gated = true;
  bool bias = false;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

// Without a list the third of four has attention, and the first within a
// window, but for the network's first.
absl::StatusOr<std::vector<Lfm3Layer>> ReadLfm3Layers(const Json& json,
                                                      int num_layers) {
  const auto count = static_cast<size_t>(num_layers);
  std::vector<Lfm3Layer> layers(count, Lfm3Layer::kConv);
  const Json* types = JsonFind(json, "layer_types");
  for (size_t i = 2; types == nullptr && i < count; i += 2) {
    layers[i] = i % 4 == 2 ? Lfm3Layer::kFull : Lfm3Layer::kWindow;
  }
  if (types == nullptr) return layers;
  bool is_known = types->is_array() && types->size() == count;
  for (size_t i = 0; is_known && i < count; ++i) {
    const Json& type = (*types)[i];
    if (type == "full_attention") layers[i] = Lfm3Layer::kFull;
    if (type == "sliding_attention") layers[i] = Lfm3Layer::kWindow;
    is_known = layers[i] != Lfm3Layer::kConv || type == "conv";
  }
  if (is_known) return layers;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: layer_types is %s; it must be an array of %d times "
      "\"conv\", \"sliding_attention\" or \"full_attention\"",
      ShownJson(*types), num_layers));
}

// Half of each head turns, by the frequencies of a whole one, where nothing is
// said; within windows all of it.
absl::Status ReadLfm3Ropes(const Json& own, Lfm3Config* config) {
  Json json = own;
  if (JsonFind(json, "rope_parameters") == nullptr) {
    json["rope_parameters"] = {
        {"full_attention",
         {{"rope_type", "proportional"},
          {"rope_theta", 1e6},
          {"partial_rotary_factor", 0.5}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  }
  INLAY_ASSIGN_OR_RETURN(
      config->full_rope,
      ReadRope(json, config->decoder, {.theta = 1e6}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(
      config->window_rope,
      ReadRope(json, config->decoder, {.theta = 1e6}, "sliding_attention"));
  return absl::OkStatus();
}

absl::StatusOr<Lfm3Config> ReadLfm3Config(const Json& own) {
  const Json json = WithUsualNames(own, {{"rms_norm_eps", "norm_eps"}});
  DecoderDefaults defaults;
  defaults.vocab_size = 128000;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 7680;
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 128;
  defaults.max_positions = 128000;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "norm_eps";
  defaults.tie_embeddings = true;
  Lfm3Config config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadDecoderConfig(json, defaults));
  config.decoder.activation = Activation::kSilu;  // whatever hidden_act says
  INLAY_ASSIGN_OR_RETURN(config.conv, ReadLfm2Conv(json, 7));
  INLAY_ASSIGN_OR_RETURN(config.layers,
                         ReadLfm3Layers(json, config.decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 256));
  INLAY_ASSIGN_OR_RETURN(config.sandwich,
                         JsonBool(json, "use_sandwich_norm", true));
  INLAY_ASSIGN_OR_RETURN(config.gated,
                         JsonBool(json, "use_attention_gate", true));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_RETURN_IF_ERROR(ReadLfm3Ropes(json, &config));
  return config;
}

// Its gates are the second layer: a number of each head.
AttentionSpec Lfm3Attention(const Lfm3Config& config, bool slides,
                            const std::string& prefix) {
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, config.bias, config.bias);
  AddHeadNorms(config.decoder, prefix, NormKind::kRms, &attention);
  attention.rope = slides ? kLfm3WindowRope : kLfm3FullRope;
  attention.window = slides ? config.window : 0;
  if (!config.gated) return attention;
  attention.gated = attention.gate_apart = attention.head_gates = true;
  attention.qkv.insert(
      attention.qkv.begin() + 1,
      LinearSpec{prefix + "self_attn.gate_proj", config.decoder.num_heads,
                 config.decoder.hidden_size});
  return attention;
}

absl::StatusOr<DecoderSpec> Lfm3Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const Lfm3Config config, ReadLfm3Config(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.final_norm.name = "model.embedding_norm";
  spec.ropes = {config.full_rope, config.window_rope};
  const auto norm = [&](const std::string& name) {
    return NormSpec{NormKind::kRms, name, decoder.norm_epsilon};
  };
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const Lfm3Layer kind = config.layers[static_cast<size_t>(i)];
    PartSpec part = Lfm2Conv(config.conv, decoder.hidden_size, prefix);
    if (kind != Lfm3Layer::kConv) {
      part = Lfm3Attention(config, kind == Lfm3Layer::kWindow, prefix);
    }
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = norm(prefix + "operator_norm"), .part = std::move(part)});
    layer.blocks.push_back({.pre_norm = norm(prefix + "ffn_norm"),
                            .part = Lfm2Mlp(decoder, prefix)});
    if (!config.sandwich) continue;
    layer.blocks[0].post_norm = norm(prefix + "post_operator_norm");
    layer.blocks[1].post_norm = norm(prefix + "post_ffn_norm");
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLfm2(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadLfm2Config(json));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Lfm2Spec(json, config, {}));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeLfm2Moe(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadLfm2MoeConfig(json));
  INLAY_ASSIGN_OR_RETURN(const Lfm2Experts experts, ReadLfm2Experts(json));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         Lfm2Spec(json, config, experts));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeLfm3(const Json& json,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Lfm3Spec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
