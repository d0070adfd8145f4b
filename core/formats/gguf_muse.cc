#include "core/formats/gguf_muse.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_gemma.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kMuseWindow[] = "attention.sliding_window";
constexpr char kMusePattern[] = "attention.sliding_window_pattern";
constexpr char kMuseWindowBase[] = "rope.freq_base_swa";
constexpr char kMuseSoftcap[] = "final_logit_softcapping";
constexpr char kMuseScale[] = "logit_scale";
// Of norms after parts, in every file.
constexpr double kMusePostEpsilon = 1e-8;

absl::Status ReadMuseNumber(const GgufArchKeys& keys, const char* key,
                            const char* name, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto value, keys.Number(key));
  if (value.value_or(0.0) > 0.0) {
    (*config)[name] = *value;
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      FormattedString("%s is %g, allowed: a number above 0", keys.Name(key),
                      value.value_or(0.0)));
}

// layer_types, which files may say by a number: every so many are full.
absl::Status ReadMuseTypes(const GgufArchKeys& keys, int64_t layers,
                           Json* config) {
  constexpr int64_t kEvery = 4;
  const GgufValue* pattern = keys.Find(kMusePattern);
  if (pattern != nullptr && pattern->is_array) {
    return ReadGgufPattern(keys, layers, false, config);
  }
  INLAY_ASSIGN_OR_RETURN(const auto every,
                         keys.Int(kMusePattern, 1, kMaxGgufLayers));
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool slides = (i + 1) % every.value_or(kEvery) != 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

// Which layers slide, and that these and no others rotate.
absl::StatusOr<std::vector<bool>> MuseSlides(const GgufKeyWriter& keys) {
  const Json* types = JsonFind(keys.config(), "layer_types");
  const Json* bases = JsonFind(keys.config(), "layer_rope_theta");
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  std::vector<bool> slides;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    bool is_local = (layers - 1 - i) % 4 != 0;
    bool rotates = is_local;
    if (types != nullptr && types->is_array() && at < types->size()) {
      is_local = (*types)[at] == "sliding_attention";
    }
    if (bases != nullptr && bases->is_array() && at < bases->size()) {
      rotates = (*bases)[at] != 0;
    }
    if (rotates != is_local) {
      return keys.NotSaid("layer_rope_theta",
                          bases == nullptr ? Json() : *bases);
    }
    slides.push_back(is_local);
  }
  return slides;
}

}  // namespace

absl::Status ReadGgufMuse(const GgufArchKeys& keys, const GgufSizes& sizes,
                          Json* config) {
  INLAY_RETURN_IF_ERROR(
      ReadMuseNumber(keys, kMuseSoftcap, "final_logit_softcapping", config));
  INLAY_RETURN_IF_ERROR(
      ReadMuseNumber(keys, kMuseScale, "output_multiplier", config));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t window,
      keys.Required(kMuseWindow, keys.Int(kMuseWindow, 1, kMaxGgufSize)));
  INLAY_RETURN_IF_ERROR(ReadMuseTypes(keys, sizes.layers, config));
  const Json base = (*config)["rope_theta"];
  INLAY_ASSIGN_OR_RETURN(const auto other, keys.Number(kMuseWindowBase));
  if (other.has_value() && *other != base.get<double>()) {
    return absl::UnimplementedError(FormattedString(
        "%s is %g, allowed: that of all layers, %g", keys.Name(kMuseWindowBase),
        *other, base.get<double>()));
  }
  Json bases = Json::array();
  for (const Json& type : (*config)["layer_types"]) {
    bases.push_back(type == "sliding_attention" ? base : Json(0));
  }
  (*config)["layer_rope_theta"] = std::move(bases);
  (*config)["sliding_window"] = window;
  (*config)["post_norm_eps"] = kMusePostEpsilon;
  (*config)["qk_norm_weights"] = true;
  return absl::OkStatus();
}

absl::Status SetGgufMuse(GgufKeyWriter& keys, int64_t head_dim,
                         GgufConfigTensors* tensors) {
  INLAY_RETURN_IF_ERROR(
      keys.CheckActivation("hidden_activation", {"silu", "swish"}));
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("tie_word_embeddings", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("post_norm_eps", kMusePostEpsilon));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> slides, MuseSlides(keys));
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("final_logit_softcapping", kMuseSoftcap, 20.0));
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("output_multiplier", kMuseScale, 0.19611613513818404));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("sliding_window", kMuseWindow, 2048).status());
  INLAY_RETURN_IF_ERROR(keys.SetBools(kMusePattern, slides));
  // What is read of such a file has its weights.
  INLAY_ASSIGN_OR_RETURN(const bool has_weights,
                         JsonBool(keys.config(), "qk_norm_weights", false));
  if (has_weights) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(keys.config(), "qk_scale_factor", 3.87, 1e-6, 1e6));
  const auto width = static_cast<size_t>(head_dim);
  for (size_t i = 0; i < slides.size(); ++i) {
    const std::string prefix = FormattedString("blk.%d.", i);
    tensors->vectors.push_back(
        {prefix + "attn_q_norm.weight",
         std::vector<float>(width, static_cast<float>(scale))});
    tensors->vectors.push_back(
        {prefix + "attn_k_norm.weight", std::vector<float>(width, 1.0f)});
  }
  return absl::OkStatus();
}

}  // namespace inlay
