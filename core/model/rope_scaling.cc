#include "core/model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace inlay {
namespace {

// base^(2i / dim), the reference's float32 power.
std::vector<float> Wavelengths(double theta, int dim) {
  std::vector<float> powers(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < powers.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[i] = std::pow(static_cast<float>(theta), exponent);
  }
  return powers;
}

std::vector<float> Inverse(std::vector<float> values) {
  for (float& value : values) value = 1.0f / value;
  return values;
}

std::vector<float> DynamicNtk(const RopeSpec& spec) {
  const double dim = spec.rotary_dim;
  // At length original_max * factor the stretch is factor^2 - factor + 1.
  const double stretch = spec.factor * spec.factor - (spec.factor - 1.0);
  const double theta = spec.theta * std::pow(stretch, dim / (dim - 2.0));
  return Inverse(Wavelengths(theta, spec.rotary_dim));
}

float YarnAttentionFactor(const RopeSpec& spec) {
  if (spec.attention_factor) return static_cast<float>(*spec.attention_factor);
  if (spec.mscale != 0.0 && spec.mscale_all_dim != 0.0) {
    return static_cast<float>(YarnMagnitude(spec.factor, spec.mscale) /
                              YarnMagnitude(spec.factor, spec.mscale_all_dim));
  }
  return static_cast<float>(YarnMagnitude(spec.factor, 1.0));
}

// The dimension that turns `rotations` times over the original context.
double YarnDimension(const RopeSpec& spec, double rotations) {
  return spec.rotary_dim *
         std::log(static_cast<double>(spec.original_max) /
                  (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(spec.theta));
}

std::vector<float> Yarn(const RopeSpec& spec) {
  double low = YarnDimension(spec, spec.beta_fast);
  double high = YarnDimension(spec, spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, spec.rotary_dim - 1.0);
  if (low == high) high += 0.001;

  const std::vector<float> powers = Wavelengths(spec.theta, spec.rotary_dim);
  std::vector<float> inv_freq(powers.size());
  for (size_t i = 0; i < powers.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) /
                       static_cast<float>(high - low),
                   0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float interpolated =
        1.0f / (static_cast<float>(spec.factor) * powers[i]);
    inv_freq[i] = interpolated * (1.0f - keep) + 1.0f / powers[i] * keep;
  }
  return inv_freq;
}

std::vector<float> Llama3(const RopeSpec& spec) {
  const auto factor = static_cast<float>(spec.factor);
  const auto low = static_cast<float>(spec.low_freq_factor);
  const auto high = static_cast<float>(spec.high_freq_factor);
  const auto context = static_cast<float>(spec.original_max);
  std::vector<float> inv_freq =
      Inverse(Wavelengths(spec.theta, spec.rotary_dim));
  for (float& frequency : inv_freq) {
    const float wavelength =
        static_cast<float>(2.0 * std::numbers::pi) / frequency;
    if (wavelength > context / low) {
      frequency /= factor;
    } else if (wavelength >= context / high) {
      const float smooth = (context / wavelength - low) / (high - low);
      frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return inv_freq;
}

std::vector<float> LongRope(const RopeSpec& spec,
                            const std::vector<double>& factors) {
  std::vector<float> powers = Wavelengths(spec.theta, spec.rotary_dim);
  for (size_t i = 0; i < powers.size(); ++i) {
    powers[i] = 1.0f / (static_cast<float>(factors[i]) * powers[i]);
  }
  return powers;
}

float LongRopeAttentionFactor(const RopeSpec& spec) {
  if (spec.attention_factor) return static_cast<float>(*spec.attention_factor);
  if (spec.factor <= 1.0 || spec.original_max <= 1) return 1.0f;
  return static_cast<float>(
      std::sqrt(1.0 + std::log(spec.factor) /
                          std::log(static_cast<double>(spec.original_max))));
}

}  // namespace

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

std::optional<RopeScaling> RopeScalingFromName(std::string_view name) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "dynamic") return RopeScaling::kDynamic;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "longrope" || name == "su") return RopeScaling::kLongRope;
  if (name == "proportional") return RopeScaling::kProportional;
  return std::nullopt;
}

RopeFrequencies ComputeRopeFrequencies(const RopeSpec& spec) {
  RopeFrequencies result;
  result.position_step = spec.position_step;
  switch (spec.scaling) {
    case RopeScaling::kNone:
      result.inv_freq = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      break;
    case RopeScaling::kLinear:
      result.inv_freq = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      for (float& frequency : result.inv_freq) {
        frequency /= static_cast<float>(spec.factor);
      }
      break;
    case RopeScaling::kDynamic:
      result.inv_freq = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      result.long_inv_freq = DynamicNtk(spec);
      result.threshold = spec.original_max;
      break;
    case RopeScaling::kYarn:
      result.inv_freq = Yarn(spec);
      result.attention_factor = YarnAttentionFactor(spec);
      break;
    case RopeScaling::kLlama3:
      result.inv_freq = Llama3(spec);
      break;
    case RopeScaling::kLongRope:
      result.inv_freq = LongRope(spec, spec.short_factor);
      result.long_inv_freq = LongRope(spec, spec.long_factor);
      result.threshold = spec.original_max;
      result.attention_factor = LongRopeAttentionFactor(spec);
      break;
    case RopeScaling::kProportional:
      result.inv_freq = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      for (size_t i = 0; i < result.inv_freq.size(); ++i) {
        const bool turns = i < static_cast<size_t>(spec.rotated_pairs);
        result.inv_freq[i] *=
            turns ? 1.0f / static_cast<float>(spec.factor) : 0.0f;
      }
      break;
    case RopeScaling::kFactor:
      result.inv_freq = {0.0f};
      result.temperature = spec.temperature;
      result.temperature_span = spec.temperature_span;
      result.temperature_offset = spec.temperature_offset;
      break;
  }
  if (spec.reversed) {
    for (float& frequency : result.inv_freq) frequency = -frequency;
    for (float& frequency : result.long_inv_freq) frequency = -frequency;
  }
  return result;
}

float RopeFrequencies::FactorAt(int32_t position) const {
  if (temperature == 0.0f) return attention_factor;
  const float spans = std::floor(
      (static_cast<float>(position) + static_cast<float>(temperature_offset)) /
      static_cast<float>(temperature_span));
  return std::log1p(spans) * temperature + 1.0f;
}

RopeSpec UnitFactor() {
  RopeSpec spec;
  spec.scaling = RopeScaling::kFactor;
  spec.rotary_dim = 2;
  return spec;
}

}  // namespace inlay
