// Muse Glimmer (Meta, 2026): Gemma 2's norms on both sides of each part, those
// after with an epsilon of their own; norms without weights of embeddings, q
// and k, gates of what attention gives; windows with rope on three layers of
// four, all tokens without on the others, counted from the last; scaled logits
// behind a softcap. Source of names and defaults: transformers'
// MuseGlimmerTextConfig (5.24).
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct MuseConfig {
  DecoderConfig decoder;
  bool norm_weights = false;  // GGUF's files have the queries' scale in them
  bool bias = false;          // of q, k, v and the output
  double query_scale = 1.0;   // of queries, after their norm
  double logit_scale = 1.0;   // before the softcap
  double softcap = 1.0;       // of logits
  double post_epsilon = 0.0;  // of norms after parts
  std::vector<bool> sliding;  // [num_layers]
  std::vector<bool> rotates;  // [num_layers]
  int window = 0;
  RopeSpec rope;
};

absl::StatusOr<DecoderConfig> ReadMuseDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 202048;
  defaults.hidden_size = 6656;
  defaults.intermediate_size = 19968;
  defaults.num_layers = 52;
  defaults.num_kv_heads = 2;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  defaults.activation_key = "hidden_activation";
  return ReadDecoderConfig(json, defaults);
}

// Every fourth layer, counted from the last, sees all and knows no positions.
bool IsMuseFull(int layer, int num_layers) {
  return (num_layers - 1 - layer) % 4 == 0;
}

absl::StatusOr<std::vector<bool>> ReadMuseSliding(const Json& json,
                                                  int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  for (int i = static_cast<int>(sliding.size()); i < num_layers; ++i) {
    sliding.push_back(!IsMuseFull(i, num_layers));
  }
  return sliding;
}

// layer_rope_theta: a layer's 0 is none. Another number than the common base is
// said to be the layer's own, and is not that in transformers.
absl::StatusOr<std::vector<bool>> ReadMuseRotates(const Json& json,
                                                  int num_layers, double base) {
  std::vector<bool> rotates;
  const Json* bases = JsonFind(json, "layer_rope_theta");
  for (int i = 0; bases == nullptr && i < num_layers; ++i) {
    rotates.push_back(!IsMuseFull(i, num_layers));
  }
  if (bases == nullptr) return rotates;
  const bool fits =
      bases->is_array() && bases->size() == static_cast<size_t>(num_layers);
  for (size_t i = 0; fits && i < bases->size(); ++i) {
    const Json& own = (*bases)[i];
    if (!own.is_number()) break;
    const auto value = own.get<double>();
    if (value != 0.0 && value != base) {
      return absl::UnimplementedError(FormattedString(
          "config.json: layer_rope_theta has %g; supported here are 0 and "
          "rope_theta, %g",
          value, base));
    }
    rotates.push_back(value != 0.0);
  }
  if (rotates.size() == static_cast<size_t>(num_layers)) return rotates;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: layer_rope_theta is %s; it must be an array of %d numbers",
      ShownJson(*bases), num_layers));
}

absl::StatusOr<MuseConfig> ReadMuseConfig(const Json& json) {
  constexpr double kMost = 1e6;
  MuseConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadMuseDecoder(json));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.norm_weights,
                         JsonBool(json, "qk_norm_weights", false));
  INLAY_ASSIGN_OR_RETURN(config.query_scale, JsonNumber(json, "qk_scale_factor",
                                                        3.87, 1e-6, kMost));
  INLAY_ASSIGN_OR_RETURN(
      config.logit_scale,
      JsonNumber(json, "output_multiplier", 0.19611613513818404, 1e-6, kMost));
  INLAY_ASSIGN_OR_RETURN(
      config.softcap,
      JsonNumber(json, "final_logit_softcapping", 20.0, 1e-6, 1e9));
  INLAY_ASSIGN_OR_RETURN(config.post_epsilon,
                         JsonNumber(json, "post_norm_eps", 1e-8, 0.0, 1.0));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.sliding, ReadMuseSliding(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadWindow(json, 2048));
  for (const bool slides : config.sliding) {
    if (slides && config.window == 0) {
      return absl::InvalidArgumentError(
          "config.json: sliding_window is null, but layers slide");
    }
  }
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  INLAY_ASSIGN_OR_RETURN(config.rotates,
                         ReadMuseRotates(json, num_layers, config.rope.theta));
  return config;
}

// Its gate is the second layer.
AttentionSpec MuseAttention(const MuseConfig& config, int layer) {
  const DecoderConfig& decoder = config.decoder;
  const auto i = static_cast<size_t>(layer);
  const std::string prefix = LayerPrefix(layer);
  AttentionSpec attention =
      LlamaStyleAttention(decoder, prefix, config.bias, config.bias);
  attention.q_norm =
      attention.k_norm = {NormKind::kRms, "", decoder.norm_epsilon};
  attention.gated = attention.gate_apart = true;
  LinearSpec gate = attention.qkv.front();
  gate.name = prefix + "self_attn.gate_proj";
  gate.bias = false;
  attention.qkv.insert(attention.qkv.begin() + 1, std::move(gate));
  if (config.norm_weights) {
    AddHeadNorms(decoder, prefix, NormKind::kRms, &attention);
  } else {
    attention.scale *= static_cast<float>(config.query_scale);
  }
  attention.window = config.sliding[i] ? config.window : 0;
  if (!config.rotates[i]) attention.rope = -1;
  return attention;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMuseGlimmer(const Json& json,
                                                       ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const MuseConfig config, ReadMuseConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  spec.embedding_norm = {NormKind::kRms, "", decoder.norm_epsilon};
  spec.logit_scale = static_cast<float>(config.logit_scale);
  spec.final_softcap = static_cast<float>(config.softcap);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec layer = SandwichLayer(decoder, prefix, MuseAttention(config, i),
                                    LlamaStyleMlp(decoder, prefix, false));
    for (BlockSpec& block : layer.blocks) {
      block.post_norm.epsilon = static_cast<float>(config.post_epsilon);
    }
    spec.layers.push_back(std::move(layer));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
