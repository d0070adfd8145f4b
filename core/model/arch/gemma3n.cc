// Gemma 3n, text: Gemma 4's layers (sandwich norms, norms of q, k and v, inputs
// per layer, last layers that read keys and values of earlier ones) over
// several residual streams of which a layer reads one (AltUp), with a learned
// augmented residual beside attention, and gates of which first layers keep
// few. Source of names, defaults and semantics: transformers' Gemma3nTextConfig
// and its modules, of 5.24: altup_coef_clip concerns training.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/formats/normal_quantile.h"
#include "core/model/arch.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/decoder.h"
#include "kernels/altup/altup.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kGemma3nFullRope = 0;
constexpr int kGemma3nWindowRope = 1;
constexpr int kGemma3nPattern = 5;
constexpr int kGemma3nSparseLayers = 10;
constexpr double kGemma3nSparsity = 0.95;
constexpr float kMagnitudeEpsilon = 1e-5f;
// Of activation_sparsity_pattern: more would leave no gate at all, and less
// that is not 0 has no quantile that a float could say.
constexpr double kMostSparsity = 0.999999;
constexpr double kLeastSparsity = 1e-12;

struct Gemma3nConfig {
  DecoderConfig decoder;
  std::vector<bool> sliding;
  std::vector<int> kv_sources;
  std::vector<int64_t> widths;   // of MLPs
  std::vector<double> sparsity;  // 0: none
  int window = 0;
  bool bias = false;
  float softcap = 0.0f;  // 0: none
  int64_t per_layer_width = 0;
  int64_t per_layer_rows = 0;
  int64_t laurel_rank = 0;
  AltUpSpec altup;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

DecoderDefaults Gemma3nDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 262400;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 16384;
  defaults.num_layers = 35;
  defaults.num_heads = 8;
  defaults.num_kv_heads = 2;
  defaults.head_dim = 256;
  defaults.max_positions = 32768;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.activation_key = "hidden_activation";
  defaults.tie_embeddings = true;
  return defaults;
}

absl::Status CheckLayerList(const Json& list, std::string_view key,
                            int num_layers) {
  if (list.is_array() && list.size() == static_cast<size_t>(num_layers)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s of %d; it must be an array of %d numbers, one a "
      "layer",
      key, list.type_name(), list.size(), num_layers));
}

// Element `i` of a list as a member that messages name.
Json MemberOf(const Json& list, std::string_view key, int i) {
  Json member = Json::object();
  member[std::string(key)] = list[static_cast<size_t>(i)];
  return member;
}

// intermediate_size is of all layers or a list; ReadDecoderConfig takes one.
absl::StatusOr<DecoderConfig> ReadGemma3nDecoder(const Json& json) {
  Json one = json;
  if (const Json* list = JsonFind(json, "intermediate_size");
      list != nullptr && list->is_array()) {
    one.erase("intermediate_size");
  }
  return ReadDecoderConfig(one, Gemma3nDefaults());
}

absl::Status ReadGemma3nMlps(const Json& json, Gemma3nConfig* config) {
  constexpr char kWidth[] = "intermediate_size";
  constexpr char kSparsity[] = "activation_sparsity_pattern";
  const int num_layers = config->decoder.num_layers;
  const Json* widths = JsonFind(json, kWidth);
  const bool listed = widths != nullptr && widths->is_array();
  if (listed)
    INLAY_RETURN_IF_ERROR(CheckLayerList(*widths, kWidth, num_layers));
  const Json* sparsity = JsonFind(json, kSparsity);
  if (sparsity != nullptr) {
    INLAY_RETURN_IF_ERROR(CheckLayerList(*sparsity, kSparsity, num_layers));
  }
  for (int i = 0; i < num_layers; ++i) {
    int64_t width = config->decoder.intermediate_size;
    if (listed) {
      INLAY_ASSIGN_OR_RETURN(width, JsonInt(MemberOf(*widths, kWidth, i),
                                            kWidth, 0, 1, kMaxHidden));
    }
    double part = num_layers > kGemma3nSparseLayers && i < kGemma3nSparseLayers
                      ? kGemma3nSparsity
                      : 0.0;
    if (sparsity != nullptr) {
      INLAY_ASSIGN_OR_RETURN(
          part, JsonNumber(MemberOf(*sparsity, kSparsity, i), kSparsity, 0.0,
                           0.0, kMostSparsity));
      if (part > 0.0 && part < kLeastSparsity) {
        return absl::InvalidArgumentError(FormattedString(
            "config.json: %s of layer %d is %g; it must be 0 or from %g to %g",
            kSparsity, i, part, kLeastSparsity, kMostSparsity));
      }
    }
    config->widths.push_back(width);
    config->sparsity.push_back(part);
  }
  return absl::OkStatus();
}

absl::Status ReadAltUp(const Json& json, Gemma3nConfig* config) {
  AltUpSpec& altup = config->altup;
  INLAY_ASSIGN_OR_RETURN(const int64_t count, JsonInt(json, "altup_num_inputs",
                                                      4, 1, kMaxAltUpStreams));
  INLAY_ASSIGN_OR_RETURN(const int64_t active,
                         JsonInt(json, "altup_active_idx", 0, 0, count - 1));
  INLAY_ASSIGN_OR_RETURN(altup.scales,
                         JsonFlag(json, "altup_correct_scale", true));
  altup.count = static_cast<int>(count);
  altup.active = static_cast<int>(active);
  altup.norm_epsilon = config->decoder.norm_epsilon;
  altup.magnitude_epsilon = kMagnitudeEpsilon;
  const int64_t hidden = config->decoder.hidden_size;
  if (count * hidden > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: altup_num_inputs is %d with hidden_size %d; together "
        "streams may have at most %d elements",
        count, hidden, kMaxHidden));
  }
  for (int i = 0; i + 1 < count; ++i) {
    altup.projections.push_back(
        {FormattedString("model.altup_projections.%d", i), hidden, hidden});
    altup.unembeddings.push_back(
        {FormattedString("model.altup_unembed_projections.%d", i), hidden,
         hidden});
  }
  return absl::OkStatus();
}

absl::Status ReadGemma3nAttention(const Json& json, Gemma3nConfig* config) {
  const DecoderConfig& decoder = config->decoder;
  INLAY_ASSIGN_OR_RETURN(config->sliding,
                         ReadSlidingLayers(json, decoder.num_layers));
  for (int i = static_cast<int>(config->sliding.size()); i < decoder.num_layers;
       ++i) {
    config->sliding.push_back((i + 1) % kGemma3nPattern != 0);
  }
  INLAY_ASSIGN_OR_RETURN(config->kv_sources,
                         ReadKvSources(json, config->sliding, 15));
  INLAY_ASSIGN_OR_RETURN(config->window, ReadWindow(json, 512));
  INLAY_ASSIGN_OR_RETURN(config->bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      config->full_rope,
      ReadRope(json, decoder, {.theta = 1e6}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(
      config->window_rope,
      ReadSlidingRope(json, decoder, "rope_local_base_freq", 10000.0));
  return absl::OkStatus();
}

absl::StatusOr<Gemma3nConfig> ReadGemma3nConfig(const Json& json) {
  Gemma3nConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadGemma3nDecoder(json));
  INLAY_RETURN_IF_ERROR(ReadGemma3nAttention(json, &config));
  INLAY_RETURN_IF_ERROR(ReadGemma3nMlps(json, &config));
  INLAY_RETURN_IF_ERROR(ReadAltUp(json, &config));
  INLAY_ASSIGN_OR_RETURN(config.laurel_rank,
                         JsonInt(json, "laurel_rank", 64, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(config.per_layer_width,
                         JsonInt(json, "hidden_size_per_layer_input", 256, 1,
                                 kMaxHidden / config.decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(
      config.per_layer_rows,
      JsonInt(json, "vocab_size_per_layer_input", 262144, 1, kMaxVocab));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> softcap,
      ReadOptionalNumber(json, "final_logit_softcapping", 30.0, 1e-6, 1e9));
  config.softcap = static_cast<float>(softcap.value_or(0.0));
  return config;
}

AttentionSpec Gemma3nAttention(const Gemma3nConfig& config, size_t layer,
                               const std::string& prefix) {
  const DecoderConfig& decoder = config.decoder;
  const bool slides = config.sliding[layer];
  AttentionSpec attention =
      LlamaStyleAttention(decoder, prefix, config.bias, config.bias);
  AddHeadNorms(decoder, prefix, NormKind::kRms, &attention);
  attention.scale = 1.0f;
  attention.window = slides ? config.window : 0;
  attention.rope = slides ? kGemma3nWindowRope : kGemma3nFullRope;
  attention.kv_source = config.kv_sources[layer];
  if (attention.kv_source >= 0) {
    attention.qkv.resize(1);
    attention.k_norm = {};
  } else {
    attention.v_norm = {NormKind::kRms, "", decoder.norm_epsilon};
  }
  return attention;
}

MlpSpec Gemma3nMlp(const Gemma3nConfig& config, size_t layer,
                   const std::string& prefix) {
  DecoderConfig decoder = config.decoder;
  decoder.intermediate_size = config.widths[layer];
  MlpSpec mlp = LlamaStyleMlp(decoder, prefix, false);
  // The reference has the number in float32.
  if (const auto part = static_cast<float>(config.sparsity[layer]);
      part > 0.0f) {
    mlp.gate_cut = static_cast<float>(NormalQuantile(part));
  }
  return mlp;
}

LayerSpec Gemma3nLayer(const Gemma3nConfig& config, int index) {
  const DecoderConfig& decoder = config.decoder;
  const int64_t hidden = decoder.hidden_size;
  const auto layer = static_cast<size_t>(index);
  const std::string prefix = LayerPrefix(index);
  const auto norm = [&](const char* name) {
    return NormSpec{NormKind::kRms, prefix + name, decoder.norm_epsilon};
  };
  LayerSpec spec;
  spec.altup = prefix + "altup.";
  LaurelSpec laurel;
  laurel.left = {prefix + "laurel.linear_left", config.laurel_rank, hidden};
  laurel.right = {prefix + "laurel.linear_right", hidden, config.laurel_rank};
  laurel.norm = norm("laurel.post_laurel_norm");
  laurel.factor = std::sqrt(0.5f);
  spec.blocks.push_back({.pre_norm = norm("input_layernorm"),
                         .post_norm = norm("post_attention_layernorm"),
                         .laurel = std::move(laurel),
                         .part = Gemma3nAttention(config, layer, prefix)});
  spec.blocks.push_back({.pre_norm = norm("pre_feedforward_layernorm"),
                         .post_norm = norm("post_feedforward_layernorm"),
                         .part = Gemma3nMlp(config, layer, prefix)});
  spec.blocks.push_back(
      {.post_norm = norm("post_per_layer_input_norm"),
       .part = GemmaPerLayer(decoder, config.per_layer_width, index, prefix)});
  return spec;
}

absl::StatusOr<DecoderSpec> Gemma3nSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const Gemma3nConfig config, ReadGemma3nConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.embedding_scale = std::sqrt(static_cast<float>(decoder.hidden_size));
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.final_softcap = config.softcap;
  // The norm is of the streams' mean, and reads their sum.
  spec.final_norm.epsilon *=
      static_cast<float>(config.altup.count * config.altup.count);
  spec.ropes = {config.full_rope, config.window_rope};
  spec.per_layer_inputs = GemmaPerLayerInputs(decoder, config.per_layer_width);
  spec.per_layer_inputs->rows = config.per_layer_rows;
  spec.altup = config.altup;
  for (int i = 0; i < decoder.num_layers; ++i) {
    spec.layers.push_back(Gemma3nLayer(config, i));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGemma3n(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Gemma3nSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
