// Mellum 2 (JetBrains): Qwen 3 with experts, with windows and another rope on
// some layers. Source of names and defaults: transformers' MellumConfig, which
// reads ropes from rope_parameters alone.
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kMellumFullRope = 0;
constexpr int kMellumWindowRope = 1;

struct MellumConfig {
  DecoderConfig decoder;
  MoeConfig moe;
  std::vector<bool> sliding;
  std::vector<bool> sparse;
  int window = 0;
  bool bias = false;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

absl::StatusOr<DecoderConfig> ReadMellumDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 98304;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 7168;
  defaults.num_layers = 28;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  return ReadDecoderConfig(json, defaults);
}

absl::StatusOr<MellumConfig> ReadMellumConfig(const Json& json) {
  MellumConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadMellumDecoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(
      config.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {64, 8, 896, true}));
  INLAY_ASSIGN_OR_RETURN(config.sliding, ReadSlidingLayers(json, num_layers));
  config.sliding.resize(static_cast<size_t>(num_layers), false);
  INLAY_ASSIGN_OR_RETURN(config.sparse, ReadMlpLayers(json, num_layers, 0));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 1024));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  Json ropes = json;
  for (const char* key :
       {"rope_theta", "rope_scaling", "rope_local_base_freq"}) {
    ropes.erase(key);
  }
  INLAY_ASSIGN_OR_RETURN(
      config.full_rope,
      ReadRope(ropes, config.decoder, {.theta = 500000.0}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(
      config.window_rope,
      ReadSlidingRope(ropes, config.decoder, "rope_local_base_freq", 10000.0));
  return config;
}

absl::StatusOr<DecoderSpec> MellumSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const MellumConfig config, ReadMellumConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.ropes = {config.full_rope, config.window_rope};
  for (int i = 0; i < decoder.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    const bool slides = config.sliding[layer];
    AttentionSpec attention =
        LlamaStyleAttention(decoder, prefix, config.bias, config.bias);
    AddHeadNorms(decoder, prefix, NormKind::kRms, &attention);
    attention.window = slides ? config.window : 0;
    attention.rope = slides ? kMellumWindowRope : kMellumFullRope;
    PartSpec mlp = LlamaStyleMlp(decoder, prefix, false);
    if (config.sparse[layer]) {
      mlp = LlamaStyleMoe(decoder, config.moe, prefix + "mlp.", "gate", false);
    }
    spec.layers.push_back(LlamaStyleLayer(decoder, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMellum(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MellumSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
