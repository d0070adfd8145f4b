#include "core/model/arch/mamba_style.h"

#include <cmath>
#include <limits>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<float> ReadFloat(const Json& value, std::string_view key) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (std::fabs(number) <= std::numeric_limits<float>::max()) {
      return static_cast<float>(number);
    }
  }
  const Json* named = JsonFind(value, "__float__");
  if (named != nullptr && *named == "Infinity") {
    return std::numeric_limits<float>::infinity();
  }
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s has %s; it must be a number", key, ShownJson(value)));
}

absl::StatusOr<std::vector<float>> ReadFactors(const Json& config,
                                               std::string_view key,
                                               size_t count) {
  std::vector<float> factors(count, 1.0f);
  const Json* list = JsonFind(config, key);
  if (list == nullptr) return factors;
  if (!list->is_array() || list->size() != count) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s is %s of %d; it must be an array of "
                        "%d numbers",
                        key, list->type_name(), list->size(), count));
  }
  for (size_t i = 0; i < count; ++i) {
    INLAY_ASSIGN_OR_RETURN(factors[i], ReadFloat((*list)[i], key));
  }
  return factors;
}

absl::Status ReadStepLimits(const Json& config, MambaSpec* spec) {
  if (JsonFind(config, "time_step_limit") == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::vector<float> limits,
                         ReadFactors(config, "time_step_limit", 2));
  if (!(limits[0] >= 0.0f && limits[1] >= limits[0])) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: time_step_limit is [%g, %g]; it must be two numbers from "
        "0 on, the second not below the first",
        limits[0], limits[1]));
  }
  spec->least_step = limits[0];
  spec->most_step = limits[1];
  return absl::OkStatus();
}

absl::StatusOr<MambaSpec> ReadMamba(const Json& config, const MambaKeys& keys,
                                    int64_t hidden_size, int64_t inner,
                                    const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(config, keys.heads, keys.default_heads, 1, kMaxHeads));
  const Json* dim = JsonFind(config, keys.head_dim);
  int64_t head_dim = inner / heads;
  const bool follows =
      dim == nullptr ? keys.default_head_dim == 0 : *dim == "auto";
  if (!follows) {
    INLAY_ASSIGN_OR_RETURN(
        head_dim,
        JsonInt(config, keys.head_dim, keys.default_head_dim, 1, kMaxHeadDim));
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t groups,
      JsonInt(config, keys.groups, keys.default_groups, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(const int64_t state_size,
                         JsonInt(config, keys.state_size,
                                 keys.default_state_size, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(config, keys.taps, 4, 2, 64));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(config, keys.bias, false));
  MambaSpec spec;
  INLAY_ASSIGN_OR_RETURN(spec.conv_bias,
                         JsonFlag(config, keys.conv_bias, true));
  if (heads * head_dim != inner || inner > kMaxHidden || heads % groups != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %d mixer heads of dimension %d in %d groups; together "
        "they must be %d wide, and heads a multiple of groups",
        heads, head_dim, groups, inner));
  }
  spec.num_heads = static_cast<int>(heads);
  spec.head_dim = static_cast<int>(head_dim);
  spec.num_groups = static_cast<int>(groups);
  spec.state_size = static_cast<int>(state_size);
  spec.num_taps = static_cast<int>(taps);
  spec.prefix = prefix;
  spec.input = {prefix + ".in_proj", inner + spec.conv_width() + heads,
                hidden_size, bias};
  spec.output = {prefix + ".out_proj", hidden_size, inner, bias};
  INLAY_RETURN_IF_ERROR(ReadStepLimits(config, &spec));
  return spec;
}

}  // namespace inlay
