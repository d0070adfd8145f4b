// Llama 4, text (Meta, 2025): three layers of four attend within chunks, with
// rope and norms of q and k; the fourth sees everything, without rope, its
// queries scaled by their position (arXiv:2501.19399). Experts read their input
// weighted by the router, beside a shared one.
#include <algorithm>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Indices into DecoderSpec::ropes.
constexpr int kTemperature = 1;
constexpr int kUnitFactor = 2;

DecoderDefaults Llama4Defaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 202048;
  defaults.hidden_size = 5120;
  defaults.intermediate_size = 16384;
  defaults.intermediate_key = "intermediate_size_mlp";
  defaults.num_layers = 48;
  defaults.num_heads = 40;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

struct Llama4Config {
  DecoderConfig decoder;
  MoeConfig moe;
  std::vector<bool> with_rope;  // [num_layers], as the two below
  std::vector<bool> chunked;
  std::vector<bool> sparse;
  int chunk = 0;  // 0: none
  bool bias = false;
  bool head_norms = true;
  bool tempered = true;
  RopeSpec rope;
  RopeSpec temperature;
};

// moe_layers, or every interleave_moe_layer_step-th layer.
absl::StatusOr<std::vector<bool>> ReadMoeLayers(const Json& json,
                                                int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t step,
      JsonInt(json, "interleave_moe_layer_step", 1, 1, kMaxLayers));
  std::vector<bool> sparse(static_cast<size_t>(num_layers), false);
  const Json* list = JsonFind(json, "moe_layers");
  if (list == nullptr) {
    for (int i = 0; i < num_layers; ++i) {
      sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
    }
    return sparse;
  }
  const auto is_layer = [&](const Json& layer) {
    return layer.is_number_integer() && layer.get<int64_t>() >= 0 &&
           layer.get<int64_t>() < num_layers;
  };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_layer)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: moe_layers is %s; it must be an array of layers from 0 "
        "to %d",
        ShownJson(*list), num_layers - 1));
  }
  for (const Json& layer : *list) {
    sparse[static_cast<size_t>(layer.get<int64_t>())] = true;
  }
  return sparse;
}

absl::Status ReadLlama4Attention(const Json& json, Llama4Config* config) {
  const int num_layers = config->decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config->with_rope, ReadRopeLayers(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(
      config->chunked,
      ReadSlidingLayers(json, num_layers, "chunked_attention"));
  if (config->chunked.empty()) config->chunked = config->with_rope;
  const bool is_null = json.contains("attention_chunk_size") &&
                       json["attention_chunk_size"].is_null();
  INLAY_ASSIGN_OR_RETURN(
      const int64_t chunk,
      JsonInt(json, "attention_chunk_size", 8192, 1, kMaxPositions));
  // One that holds every sequence is none.
  if (!is_null && chunk < config->decoder.max_positions) {
    config->chunk = static_cast<int>(chunk);
  }
  INLAY_ASSIGN_OR_RETURN(config->bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config->head_norms,
                         JsonBool(json, "use_qk_norm", true));
  INLAY_ASSIGN_OR_RETURN(config->tempered,
                         JsonBool(json, "attn_temperature_tuning", true));
  INLAY_ASSIGN_OR_RETURN(const double scale,
                         JsonNumber(json, "attn_scale", 0.1, 0.0, 1e6));
  INLAY_ASSIGN_OR_RETURN(const int64_t span,
                         JsonInt(json, "floor_scale", 8192, 1, kMaxPositions));
  config->temperature = UnitFactor();
  config->temperature.temperature = static_cast<float>(scale);
  config->temperature.temperature_span = span;
  INLAY_ASSIGN_OR_RETURN(config->rope,
                         ReadRope(json, config->decoder, {.theta = 500000.0}));
  // Whatever multiplies the rotation, the norms take out again.
  if (config->head_norms) config->rope.attention_factor = 1.0;
  return absl::OkStatus();
}

absl::StatusOr<Llama4Config> ReadLlama4Config(const Json& json) {
  Llama4Config config;
  INLAY_ASSIGN_OR_RETURN(config.decoder,
                         ReadDecoderConfig(json, Llama4Defaults()));
  INLAY_ASSIGN_OR_RETURN(
      config.moe, ReadMoeConfig(json, "intermediate_size", {16, 1, 8192}));
  if (config.moe.routing.top_k != 1) {
    return absl::UnimplementedError(FormattedString(
        "config.json: num_experts_per_tok is %d; supported here is 1, for "
        "experts whose inputs are weighted",
        config.moe.routing.top_k));
  }
  config.moe.routing.score = RoutingScore::kSigmoid;
  config.moe.routing.normalised = false;
  INLAY_ASSIGN_OR_RETURN(config.sparse,
                         ReadMoeLayers(json, config.decoder.num_layers));
  INLAY_RETURN_IF_ERROR(ReadLlama4Attention(json, &config));
  return config;
}

AttentionSpec Llama4Attention(const Llama4Config& config, size_t layer,
                              const std::string& prefix) {
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, config.bias, config.bias);
  attention.rope_style = RopeStyle::kInterleaved;
  attention.chunk = config.chunked[layer] ? config.chunk : 0;
  if (!config.with_rope[layer]) {
    attention.rope = -1;
    attention.query_factor = config.tempered ? kTemperature : -1;
  } else if (config.head_norms) {
    // The network has them after the rotation, which changes no lengths.
    attention.q_norm = {NormKind::kRms, "", config.decoder.norm_epsilon};
    attention.k_norm = attention.q_norm;
  }
  return attention;
}

PartSpec Llama4FeedForward(const Llama4Config& config, size_t layer,
                           const std::string& prefix) {
  if (!config.sparse[layer]) {
    return SharedExpert(config.decoder, prefix,
                        config.decoder.intermediate_size);
  }
  MoeSpec moe =
      LlamaStyleMoe(config.decoder, config.moe, prefix, "router", false);
  moe.shared =
      SharedExpert(config.decoder, prefix + "shared_expert.", config.moe.width);
  moe.input_weights = kUnitFactor;
  return moe;
}

absl::StatusOr<DecoderSpec> Llama4Spec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const Llama4Config config, ReadLlama4Config(json));
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, NormKind::kRms);
  spec.max_positions =
      UsablePositions(config.decoder.max_positions, config.rope);
  spec.ropes = {config.rope, config.temperature, UnitFactor()};
  for (int i = 0; i < config.decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const auto layer = static_cast<size_t>(i);
    spec.layers.push_back(LlamaStyleLayer(
        config.decoder, prefix, NormKind::kRms,
        Llama4Attention(config, layer, prefix),
        Llama4FeedForward(config, layer, prefix + "feed_forward.")));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLlama4(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Llama4Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
