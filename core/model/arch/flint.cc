// Flint (Recursive, 2026): Qwen 3 with experts, chosen by sigmoid scores beside
// a shared one; sinks in all layers; windows with rope on most layers, the
// others see all tokens and have none. Source of names and defaults:
// transformers' FlintConfig.
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct FlintConfig {
  DecoderConfig decoder;
  MoeConfig moe;
  int64_t shared_width = 0;
  std::vector<bool> sliding;
  std::vector<bool> sparse;
  int window = 0;
  bool bias = false;
  RopeSpec rope;
};

absl::StatusOr<DecoderConfig> ReadFlintDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 150144;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.num_layers = 49;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 128;
  defaults.max_positions = 262144;
  return ReadDecoderConfig(json, defaults);
}

// layer_types; without, the first two layers, every fourth and the last are
// full.
absl::StatusOr<std::vector<bool>> ReadFlintSliding(const Json& json,
                                                   int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!sliding.empty()) return sliding;
  for (int i = 0; i < num_layers; ++i) {
    sliding.push_back(i >= 2 && i % 4 != 1 && i != num_layers - 1);
  }
  return sliding;
}

absl::StatusOr<FlintConfig> ReadFlintConfig(const Json& json) {
  FlintConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadFlintDecoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(
      config.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {256, 6, 512, true}));
  config.moe.routing.score = RoutingScore::kSigmoid;
  INLAY_ASSIGN_OR_RETURN(
      config.shared_width,
      JsonInt(json, "shared_expert_intermediate_size", 1024, 1, kMaxHidden));
  Json sparse = json;
  if (JsonFind(json, "mlp_only_layers") == nullptr) {
    sparse["mlp_only_layers"] =
        num_layers > 1 ? Json::array({0, 1}) : Json::array({0});
  }
  INLAY_ASSIGN_OR_RETURN(config.sparse, ReadSparseLayers(sparse, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.sliding, ReadFlintSliding(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 513));
  if (config.window == 0) {
    return absl::UnimplementedError(
        "config.json: sliding_window is null; supported here is a number");
  }
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  return config;
}

// Published names of sinks; transformers' where the files have those.
std::string FlintSinks(const std::string& prefix, const WeightLoader& weights) {
  const std::string other = prefix + "self_attn.sinks";
  return weights.Has(other) ? other : prefix + "self_attn.softmax_offset";
}

AttentionSpec FlintAttention(const FlintConfig& config,
                             const std::string& prefix, bool slides,
                             const WeightLoader& weights) {
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, config.bias, config.bias);
  AddHeadNorms(config.decoder, prefix, NormKind::kRms, &attention);
  attention.sinks = FlintSinks(prefix, weights);
  attention.window = slides ? config.window : 0;
  if (!slides) attention.rope = -1;
  return attention;
}

MoeSpec FlintMoe(const FlintConfig& config, const std::string& prefix) {
  MoeSpec moe =
      LlamaStyleMoe(config.decoder, config.moe, prefix, "gate", false);
  moe.shared = SharedExpert(config.decoder, prefix + "shared_expert.",
                            config.shared_width);
  return moe;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeFlint(const Json& json,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const FlintConfig config, ReadFlintConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    PartSpec mlp = LlamaStyleMlp(decoder, prefix, false);
    if (config.sparse[layer]) mlp = FlintMoe(config, prefix + "mlp.");
    spec.layers.push_back(LlamaStyleLayer(
        decoder, prefix, NormKind::kRms,
        FlintAttention(config, prefix, config.sliding[layer], build.weights),
        std::move(mlp)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
