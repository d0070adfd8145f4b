// Kolibri 1 (Aleph Alpha, 2026): EXAONE 4's attention, windows with rope on
// four layers of five and all tokens without on the others, norms on both sides
// of each part, and in every layer experts that are chosen by their corrected
// logits and weighed by sigmoids of these, beside a shared one. Source of names
// and defaults: transformers' Kolibri1Config.
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct KolibriConfig {
  DecoderConfig decoder;
  MoeConfig moe;
  int64_t shared_width = 0;
  std::vector<bool> sliding;
  int window = 0;
  RopeSpec rope;
};

absl::StatusOr<DecoderConfig> ReadKolibriDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128000;
  defaults.hidden_size = 2560;
  defaults.num_layers = 50;
  defaults.num_heads = 48;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 128;
  defaults.max_positions = 262144;
  return ReadDecoderConfig(json, defaults);
}

// layer_types; without, every fifth layer is full.
absl::StatusOr<std::vector<bool>> ReadKolibriSliding(const Json& json,
                                                     int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!sliding.empty()) return sliding;
  for (int i = 0; i < num_layers; ++i) sliding.push_back((i + 1) % 5 != 0);
  return sliding;
}

absl::StatusOr<KolibriConfig> ReadKolibriConfig(const Json& json) {
  KolibriConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadKolibriDecoder(json));
  INLAY_ASSIGN_OR_RETURN(
      config.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {384, 6, 512, false}));
  config.moe.routing.score = RoutingScore::kLogitSigmoid;
  INLAY_ASSIGN_OR_RETURN(
      config.shared_width,
      JsonInt(json, "shared_expert_intermediate_size", 512, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(config.sliding,
                         ReadKolibriSliding(json, config.decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 513));
  for (const bool slides : config.sliding) {
    if (slides && config.window == 0) {
      return absl::InvalidArgumentError(
          "config.json: sliding_window is null, but layers slide");
    }
  }
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  return config;
}

// The published name of a tensor or of a norm, or transformers' where files
// have that.
std::string NameIn(const WeightLoader& weights, const std::string& published,
                   const std::string& other, const char* suffix) {
  return weights.Has(other + suffix) ? other : published;
}

AttentionSpec KolibriAttention(const KolibriConfig& config,
                               const std::string& prefix, bool slides) {
  AttentionSpec attention =
      LlamaStyleAttention(config.decoder, prefix, false, false);
  AddHeadNorms(config.decoder, prefix, NormKind::kRms, &attention);
  if (slides) {
    attention.window = config.window;
  } else if (config.window > 0) {
    attention.rope = -1;
  }
  return attention;
}

MoeSpec KolibriMoe(const KolibriConfig& config, const std::string& prefix,
                   const WeightLoader& weights) {
  MoeSpec moe =
      LlamaStyleMoe(config.decoder, config.moe, prefix + "mlp.", "gate", false);
  moe.correction = NameIn(weights, prefix + "moe.router.expert_bias",
                          prefix + "mlp.gate.e_score_correction_bias", "");
  moe.shared = SharedExpert(config.decoder, prefix + "mlp.shared_experts.",
                            config.shared_width);
  return moe;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeKolibri1(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const KolibriConfig config, ReadKolibriConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec layer = LlamaStyleLayer(
        decoder, prefix, NormKind::kRms,
        KolibriAttention(config, prefix,
                         config.sliding[static_cast<size_t>(i)]),
        KolibriMoe(config, prefix, build.weights));
    const auto norm = [&](const char* published, const char* other) {
      return NormSpec{
          NormKind::kRms,
          NameIn(build.weights, prefix + published, prefix + other, ".weight"),
          decoder.norm_epsilon};
    };
    layer.blocks[0].post_norm =
        norm("post_attn_norm", "post_self_attn_layernorm");
    layer.blocks[1].post_norm = norm("post_ffn_norm", "post_mlp_layernorm");
    spec.layers.push_back(std::move(layer));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
