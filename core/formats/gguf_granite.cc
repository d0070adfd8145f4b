#include "core/formats/gguf_granite.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/formats/gguf_gemma.h"
#include "core/formats/gguf_windows.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kGraniteWindow[] = "attention.sliding_window";
constexpr char kGranitePattern[] = "attention.sliding_window_pattern";
constexpr char kGraniteRopes[] = "attention.rope_pattern";
constexpr char kGraniteShared[] = "expert_shared_feed_forward_length";
constexpr char kBasesOfLayers[] = "layer_rope_theta";
// Every so many layers, from the first on, one is full where config.json says
// nothing.
constexpr size_t kGraniteFullLayers = 4;

absl::Status ReadGraniteRopes(const GgufArchKeys& keys, int64_t layers,
                              Json* config) {
  if (keys.Find(kGraniteRopes) == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> pattern,
                         ReadGgufLayerFlags(keys, kGraniteRopes, layers));
  const Json base = config->value("rope_theta", Json(1e4));
  Json bases = Json::array();
  for (const bool rotates : pattern) {
    bases.push_back(rotates ? base : Json(0));
  }
  (*config)[kBasesOfLayers] = std::move(bases);
  return absl::OkStatus();
}

absl::Status SetGraniteSwa(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const auto count = static_cast<size_t>(layers);
  if (keys.IsNull("sliding_window")) {
    return keys.NotSaid("sliding_window", Json());
  }
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("sliding_window", kGraniteWindow, 128).status());
  const Json* types = JsonFind(keys.config(), "layer_types");
  std::vector<bool> slides;
  for (size_t i = 0; i < count; ++i) {
    const bool is_listed =
        types != nullptr && types->is_array() && i < types->size();
    slides.push_back(is_listed ? (*types)[i] == "sliding_attention"
                               : i % kGraniteFullLayers != 0);
  }
  INLAY_RETURN_IF_ERROR(keys.SetBools(kGranitePattern, slides));
  const Json* bases = JsonFind(keys.config(), kBasesOfLayers);
  if (bases == nullptr) return absl::OkStatus();
  if (!bases->is_array() || bases->size() != count) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s has not one number for each of %d layers: a GGUF file "
        "needs it",
        kBasesOfLayers, layers));
  }
  const Json with_base = WithGraniteBase(keys.config());
  std::vector<bool> rotates;
  for (const Json& base : *bases) {
    rotates.push_back(base != 0);
    if (base != 0 && base != with_base["rope_theta"]) {
      return keys.NotSaid(kBasesOfLayers, *bases);
    }
  }
  return keys.SetBools(kGraniteRopes, rotates);
}

}  // namespace

absl::Status ReadGgufGranite(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config) {
  for (const auto& [key, name] :
       {std::pair{"embedding_scale", "embedding_multiplier"},
        std::pair{"residual_scale", "residual_multiplier"},
        std::pair{"logit_scale", "logits_scaling"}}) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber(key, name, config));
  }
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("attention.scale"));
  (*config)["attention_multiplier"] =
      scale.value_or(0.0) != 0.0
          ? *scale
          : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  return absl::OkStatus();
}

absl::Status ReadGgufGraniteSwa(const GgufArchKeys& keys,
                                const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t window,
      keys.Required(kGraniteWindow, keys.Int(kGraniteWindow, 1, kMaxGgufSize)));
  (*config)["sliding_window"] = window;
  INLAY_RETURN_IF_ERROR(ReadGgufPattern(keys, sizes.layers, false, config));
  if (!config->contains("layer_types")) {
    return absl::InvalidArgumentError(
        FormattedString("%s: allowed: a bool for each of %d layers",
                        keys.Name(kGranitePattern), sizes.layers));
  }
  INLAY_RETURN_IF_ERROR(ReadGraniteRopes(keys, sizes.layers, config));
  INLAY_ASSIGN_OR_RETURN(const auto experts,
                         keys.Int("expert_count", 0, kMaxGgufSize));
  if (experts.value_or(0) == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const auto shared,
                         keys.Int(kGraniteShared, 0, kMaxGgufSize));
  (*config)["architectures"] = {"GraniteMoeSWAForCausalLM"};
  (*config)["model_type"] = "granitemoe_swa";
  (*config)["shared_intermediate_size"] = shared.value_or(0);
  return absl::OkStatus();
}

absl::Status SetGgufGranite(GgufKeyWriter& keys) {
  if (keys.arch() == "granite_swa") {
    INLAY_RETURN_IF_ERROR(SetGraniteSwa(keys));
  }
  for (const auto& [from, to] :
       {std::pair{"attention_multiplier", "attention.scale"},
        std::pair{"embedding_multiplier", "embedding_scale"},
        std::pair{"residual_multiplier", "residual_scale"},
        std::pair{"logits_scaling", "logit_scale"}}) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber(from, to, 1.0));
  }
  return absl::OkStatus();
}

Json WithGraniteBase(const Json& config) {
  Json own = config;
  const Json* bases = JsonFind(config, kBasesOfLayers);
  if (bases == nullptr || !bases->is_array()) return own;
  for (const Json& base : *bases) {
    if (base == 0) continue;
    own["rope_theta"] = base;
    const auto nested = own.find("rope_parameters");
    if (nested != own.end() && nested->is_object()) {
      (*nested)["rope_theta"] = base;
    }
    break;
  }
  return own;
}

}  // namespace inlay
