// Reading rotary embeddings from config.json: rope_parameters (flat or by layer
// type), or rope_theta with rope_scaling.
#include <cmath>

#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

// The object that holds the scaling of `layer_type`; null when there is none.
absl::StatusOr<const Json*> ScalingObject(const Json& config,
                                          std::string_view layer_type) {
  const Json* object = JsonFind(config, "rope_parameters");
  std::string_view key = "rope_parameters";
  if (object == nullptr) {
    object = JsonFind(config, "rope_scaling");
    key = "rope_scaling";
  }
  if (object == nullptr) return nullptr;
  if (!object->is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s is %s; it must be an object", key,
                        object->type_name()));
  }
  if (layer_type.empty()) return object;
  const Json* nested = JsonFind(*object, layer_type);
  if (nested == nullptr) return object;
  if (!nested->is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s.%s is %s; it must be an object", key,
                        layer_type, nested->type_name()));
  }
  return nested;
}

absl::StatusOr<std::vector<double>> ReadFactors(const Json& object,
                                                std::string_view key,
                                                int rotary_dim) {
  const Json* list = JsonFind(object, key);
  const size_t wanted = static_cast<size_t>(rotary_dim / 2);
  if (list == nullptr || !list->is_array() || list->size() != wanted) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: rope scaling's %s is %s; it must be an array of %d "
        "numbers (half the rotary dimensions)",
        key,
        list == nullptr
            ? "missing"
            : FormattedString("%s of %d", list->type_name(), list->size()),
        wanted));
  }
  std::vector<double> factors;
  factors.reserve(wanted);
  for (const Json& value : *list) {
    const double factor = value.is_number() ? value.get<double>() : -1.0;
    if (!(factor > 0.0 && factor <= kMaxFactor)) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: rope scaling's %s holds %s; its members must be "
          "numbers in (0, %g]",
          key, ShownJson(value), kMaxFactor));
    }
    factors.push_back(factor);
  }
  return factors;
}

// The original context: the model's own key wins over the scaling's, as in the
// reference.
absl::StatusOr<int64_t> OriginalMax(const Json& config, const Json& object,
                                    int64_t max_positions) {
  const Json& holder =
      JsonFind(config, "original_max_position_embeddings") != nullptr ? config
                                                                      : object;
  return JsonInt(holder, "original_max_position_embeddings", max_positions, 1,
                 kMaxPositions);
}

absl::StatusOr<double> ReadFactor(const Json& object, double fallback) {
  if (fallback == 0.0 && JsonFind(object, "factor") == nullptr) {
    return absl::InvalidArgumentError(
        "config.json: the rope scaling has no factor; a number in [1, 1e6] is "
        "needed");
  }
  return JsonNumber(object, "factor", fallback, 1.0, kMaxFactor);
}

absl::Status ReadYarn(const Json& object, RopeSpec& spec) {
  INLAY_ASSIGN_OR_RETURN(
      spec.beta_fast, JsonNumber(object, "beta_fast", 32.0, 0.0, kMaxFactor));
  INLAY_ASSIGN_OR_RETURN(spec.beta_slow,
                         JsonNumber(object, "beta_slow", 1.0, 0.0, kMaxFactor));
  // The reference takes 0 for "not given" here.
  if (spec.beta_fast == 0.0) spec.beta_fast = 32.0;
  if (spec.beta_slow == 0.0) spec.beta_slow = 1.0;
  INLAY_ASSIGN_OR_RETURN(spec.mscale,
                         JsonNumber(object, "mscale", 0.0, 0.0, kMaxFactor));
  INLAY_ASSIGN_OR_RETURN(spec.truncate, JsonBool(object, "truncate", true));
  return absl::OkStatus();
}

absl::Status ReadLlama3(const Json& object, RopeSpec& spec) {
  INLAY_ASSIGN_OR_RETURN(
      spec.low_freq_factor,
      JsonNumber(object, "low_freq_factor", 1.0, 1e-6, kMaxFactor));
  INLAY_ASSIGN_OR_RETURN(
      spec.high_freq_factor,
      JsonNumber(object, "high_freq_factor", 4.0, 1e-6, kMaxFactor));
  if (spec.high_freq_factor > spec.low_freq_factor) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "config.json: rope scaling's high_freq_factor is %g; it must be greater "
      "than low_freq_factor (%g)",
      spec.high_freq_factor, spec.low_freq_factor));
}

absl::Status ReadScaling(const Json& config, const Json& object,
                         int64_t max_positions, const RopeDefaults& defaults,
                         RopeSpec& spec) {
  INLAY_ASSIGN_OR_RETURN(const std::string old_type,
                         JsonString(object, "type", "default"));
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(object, "rope_type", old_type));
  const std::optional<RopeScaling> scaling = RopeScalingFromName(type);
  if (!scaling) {
    return absl::UnimplementedError(FormattedString(
        "config.json: rope type \"%s\" is not supported; supported are "
        "default, linear, dynamic, yarn, llama3, longrope, proportional",
        type));
  }
  spec.scaling = *scaling;
  if (defaults.yarn_is_longrope && spec.scaling == RopeScaling::kYarn) {
    spec.scaling = RopeScaling::kLongRope;
  }
  if (spec.scaling == RopeScaling::kNone) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(spec.original_max,
                         OriginalMax(config, object, max_positions));
  // YaRN and LongRoPE may leave the factor to the ratio of the two lengths.
  const bool implied = spec.scaling == RopeScaling::kYarn ||
                       spec.scaling == RopeScaling::kLongRope;
  const double ratio =
      std::fmax(1.0, static_cast<double>(max_positions) /
                         static_cast<double>(spec.original_max));
  const bool optional = spec.scaling == RopeScaling::kProportional;
  INLAY_ASSIGN_OR_RETURN(spec.factor, ReadFactor(object, implied    ? ratio
                                                         : optional ? 1.0
                                                                    : 0.0));
  INLAY_ASSIGN_OR_RETURN(spec.attention_factor,
                         ReadOptionalNumber(object, "attention_factor",
                                            std::nullopt, 0.0, kMaxFactor));
  INLAY_ASSIGN_OR_RETURN(
      spec.mscale_all_dim,
      JsonNumber(object, "mscale_all_dim", 0.0, 0.0, kMaxFactor));
  switch (spec.scaling) {
    case RopeScaling::kYarn:
      return ReadYarn(object, spec);
    case RopeScaling::kLlama3:
      return ReadLlama3(object, spec);
    case RopeScaling::kLongRope: {
      INLAY_ASSIGN_OR_RETURN(
          spec.short_factor,
          ReadFactors(object, "short_factor", spec.rotary_dim));
      INLAY_ASSIGN_OR_RETURN(
          spec.long_factor,
          ReadFactors(object, "long_factor", spec.rotary_dim));
      return absl::OkStatus();
    }
    case RopeScaling::kDynamic:
      // The stretch of the base divides by rotary_dim - 2, and the reference
      // takes max_position_embeddings for the original length.
      spec.original_max = max_positions;
      if (spec.rotary_dim > 2) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "config.json: dynamic rope scaling needs more than 2 rotary "
          "dimensions");
    case RopeScaling::kNone:
    case RopeScaling::kLinear:
    case RopeScaling::kProportional:
    case RopeScaling::kFactor:
      break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RopeSpec> ReadRope(const Json& config,
                                  const DecoderConfig& decoder,
                                  const RopeDefaults& defaults,
                                  std::string_view layer_type) {
  INLAY_ASSIGN_OR_RETURN(const Json* object, ScalingObject(config, layer_type));
  const Json none = Json::object();
  const Json& scaling = object == nullptr ? none : *object;

  RopeSpec spec;
  INLAY_ASSIGN_OR_RETURN(
      const double theta,
      JsonNumber(config, "rope_theta", defaults.theta, 1.0, kMaxTheta));
  INLAY_ASSIGN_OR_RETURN(
      spec.theta, JsonNumber(scaling, "rope_theta", theta, 1.0, kMaxTheta));
  INLAY_ASSIGN_OR_RETURN(const double outer,
                         JsonNumber(config, "partial_rotary_factor",
                                    defaults.partial.value_or(1.0), 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(
      const double partial,
      JsonNumber(scaling, "partial_rotary_factor", outer, 0.0, 1.0));
  spec.rotary_dim = static_cast<int>(decoder.head_dim * partial);
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: head_dim %d with partial_rotary_factor %g gives %d "
        "rotary dimensions; the number must be even and at least 2",
        decoder.head_dim, partial, spec.rotary_dim));
  }
  if (spec.theta <= 1.0) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: rope_theta is %g; it must be in (1, %g]",
                        spec.theta, kMaxTheta));
  }
  INLAY_RETURN_IF_ERROR(
      ReadScaling(config, scaling, decoder.max_positions, defaults, spec));
  if (spec.scaling != RopeScaling::kProportional) {
    if (defaults.partial.has_value() || partial == 1.0) return spec;
    return absl::UnimplementedError(FormattedString(
        "config.json: partial_rotary_factor is %g; supported here is 1: this "
        "family rotates whole heads",
        partial));
  }
  if (decoder.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: head_dim is %d; it must be even for "
                        "proportional rope",
                        decoder.head_dim));
  }
  spec.rotated_pairs = spec.rotary_dim / 2;
  spec.rotary_dim = decoder.head_dim;
  return spec;
}

absl::StatusOr<RopeSpec> ReadSlidingRope(const Json& config,
                                         const DecoderConfig& decoder,
                                         std::string_view theta_key,
                                         double theta) {
  const Json* parameters = JsonFind(config, "rope_parameters");
  if (parameters != nullptr &&
      JsonFind(*parameters, "sliding_attention") != nullptr) {
    return ReadRope(config, decoder, {}, "sliding_attention");
  }
  RopeSpec spec;
  spec.rotary_dim = decoder.head_dim;
  INLAY_ASSIGN_OR_RETURN(
      spec.theta, JsonNumber(config, theta_key, theta, 1.0001, kMaxTheta));
  return spec;
}

}  // namespace inlay
