#include "core/formats/gguf_rotary.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/describe.h"
#include "core/formats/gguf_sizes.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

using Factors = std::optional<std::vector<float>>;

absl::Status ReadDim(const GgufArchKeys& keys, int64_t head_dim, Json* config) {
  // Files say 0 and mean whole heads.
  if (keys.arch() == "deepseek2-ocr") return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const auto dim,
                         keys.Int("rope.dimension_count", 2, head_dim));
  if (!dim.has_value() || *dim == head_dim) {
    // Without a word config.json would mean half of each head.
    if (keys.arch() == "glm4moe") (*config)["partial_rotary_factor"] = 1.0;
    return absl::OkStatus();
  }
  // The fraction is multiplied out and cut off again: stay above the integer.
  (*config)["partial_rotary_factor"] =
      (static_cast<double>(*dim) + 0.5) / static_cast<double>(head_dim);
  return absl::OkStatus();
}

absl::Status ReadYarn(const GgufArchKeys& keys, Json* scaling) {
  constexpr char kExtrapolation[] = "rope.scaling.yarn_ext_factor";
  INLAY_ASSIGN_OR_RETURN(const auto factor, keys.Number(kExtrapolation));
  // Negative: the default, which is 1.
  if (factor.value_or(1.0) >= 0.0 && factor.value_or(1.0) != 1.0) {
    return absl::UnimplementedError(FormattedString(
        "%s is %g, allowed: 1", keys.Name(kExtrapolation), *factor));
  }
  const struct {
    const char* key;
    const char* name;
  } numbers[] = {{"rope.scaling.factor", "factor"},
                 {"rope.scaling.yarn_attn_factor", "attention_factor"},
                 {"rope.scaling.yarn_beta_fast", "beta_fast"},
                 {"rope.scaling.yarn_beta_slow", "beta_slow"}};
  for (const auto& [key, name] : numbers) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber(key, name, scaling));
  }
  return absl::OkStatus();
}

// The type that the keys say, with its numbers; "none" where factors may say
// more.
absl::StatusOr<std::string> ReadKeys(const GgufArchKeys& keys, Json* scaling) {
  INLAY_ASSIGN_OR_RETURN(const auto named, keys.String("rope.scaling.type"));
  INLAY_ASSIGN_OR_RETURN(const auto old, keys.Number("rope.scale_linear"));
  const std::string type = named.value_or(old.has_value() ? "linear" : "none");
  if (type == "linear") {
    if (old.has_value()) (*scaling)["factor"] = *old;
    INLAY_RETURN_IF_ERROR(
        keys.CopyNumber("rope.scaling.factor", "factor", scaling));
  } else if (type == "yarn") {
    INLAY_RETURN_IF_ERROR(ReadYarn(keys, scaling));
  }
  return type;
}

absl::Status ReadScaling(const GgufFiles& files, const GgufArchKeys& keys,
                         Json* config) {
  INLAY_ASSIGN_OR_RETURN(const Factors factors,
                         files.ReadVector("rope_freqs.weight"));
  INLAY_ASSIGN_OR_RETURN(const Factors longer,
                         files.ReadVector("rope_factors_long.weight"));
  INLAY_ASSIGN_OR_RETURN(const Factors shorter,
                         files.ReadVector("rope_factors_short.weight"));
  Json scaling = Json::object();
  INLAY_ASSIGN_OR_RETURN(std::string type, ReadKeys(keys, &scaling));
  if (longer.has_value() && shorter.has_value()) {
    type = "longrope";
    scaling = Json{{"short_factor", *shorter}, {"long_factor", *longer}};
    INLAY_RETURN_IF_ERROR(keys.CopyNumber("rope.scaling.attn_factor",
                                          "attention_factor", &scaling));
  } else if (factors.has_value() && type == "none") {
    type = "longrope";
    scaling = Json{{"short_factor", *factors},
                   {"long_factor", *factors},
                   {"factor", 1.0},
                   {"attention_factor", 1.0}};
  } else if (type == "none") {
    return absl::OkStatus();
  } else if (factors.has_value() || (type != "linear" && type != "yarn")) {
    return absl::UnimplementedError(FormattedString(
        "%s is %s%s, allowed: none, linear, yarn, longrope with its factors in "
        "tensors",
        keys.Name("rope.scaling.type"), Quoted(type),
        factors.has_value() ? " with rope_freqs.weight" : ""));
  }
  scaling["rope_type"] = type;
  INLAY_ASSIGN_OR_RETURN(
      const auto context,
      keys.Int("rope.scaling.original_context_length", 0, kMaxGgufSize));
  if (context.value_or(0) > 0) {
    scaling["original_max_position_embeddings"] = *context;
  }
  (*config)["rope_scaling"] = std::move(scaling);
  return absl::OkStatus();
}

// Sections of positions: of text the first three are the token's own, which is
// a plain rope; a fourth's are 0. Rows of q and k of GLM-4V's files ("glm4"
// with sections) lie by halves, those of GLM-4's in pairs.
absl::Status CheckSections(const GgufArchKeys& keys) {
  constexpr char kSections[] = "rope.dimension_sections";
  INLAY_ASSIGN_OR_RETURN(const auto sections, keys.Ints(kSections));
  if (!sections.has_value()) return absl::OkStatus();
  for (size_t i = 0; i < sections->size(); ++i) {
    if ((*sections)[i] == 0 || (i < 3 && keys.arch() != "glm4")) continue;
    return absl::UnimplementedError(FormattedString(
        "%s has %d at %d, allowed: %s", keys.Name(kSections), (*sections)[i], i,
        i < 3 ? "0, as in files of GLM-4 without vision"
              : "0 behind the first three"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufRotary(const GgufFiles& files, const GgufArchKeys& keys,
                            int64_t head_dim, Json* config) {
  // What files without a base mean, whatever the family.
  (*config)["rope_theta"] = 10000.0;
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("rope.freq_base", "rope_theta", config));
  INLAY_RETURN_IF_ERROR(ReadDim(keys, head_dim, config));
  INLAY_RETURN_IF_ERROR(CheckSections(keys));
  return ReadScaling(files, keys, config);
}

}  // namespace inlay
