#include "core/formats/model_path.h"

#include <charconv>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kRandomPrefix = "random:";

absl::StatusOr<DType> ParseDType(std::string_view value) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (DTypeName(dtype) == value) return dtype;
  }
  const std::optional<DType> dtype = DTypeFromName(value);
  if (dtype.has_value() && IsBlockFormat(*dtype)) return *dtype;
  return absl::InvalidArgumentError(FormattedString(
      "dtype is %s, allowed: f32, f16, bf16 and the block formats of quantised "
      "weights (q4_0, q8_0, ...)",
      Quoted(value)));
}

absl::StatusOr<uint64_t> ParseSeed(std::string_view value) {
  uint64_t seed = 0;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), seed);
  if (error != std::errc() || end != value.data() + value.size()) {
    return absl::InvalidArgumentError(
        FormattedString("seed is %s, allowed: an integer from 0 to %d",
                        Quoted(value), UINT64_MAX));
  }
  return seed;
}

// "dtype=q4_k&seed=7&*v_proj*=q6_k", after the question mark.
absl::StatusOr<RandomWeights> ParseOptions(std::string_view options) {
  std::optional<DType> dtype;
  std::optional<uint64_t> seed;
  std::vector<TensorOverride> overrides;
  while (true) {
    const size_t end = options.find('&');
    const std::string_view option = options.substr(0, end);
    const size_t equals = option.find('=');
    const std::string_view key = option.substr(0, equals);
    const std::string_view value =
        equals == option.npos ? "" : option.substr(equals + 1);
    if (key == "dtype" && !dtype.has_value()) {
      INLAY_ASSIGN_OR_RETURN(dtype, ParseDType(value));
    } else if (key == "seed" && !seed.has_value()) {
      INLAY_ASSIGN_OR_RETURN(seed, ParseSeed(value));
    } else if (key.find_first_of("*?") != key.npos) {
      INLAY_ASSIGN_OR_RETURN(const DType of_pattern, ParseDType(value));
      overrides.push_back({std::string(key), of_pattern});
    } else {
      return absl::InvalidArgumentError(FormattedString(
          "option %s, allowed: dtype=NAME and seed=N, once each, and "
          "PATTERN=NAME with * or ?",
          Quoted(option)));
    }
    if (end == options.npos) break;
    options.remove_prefix(end + 1);
  }
  const RandomWeights defaults;
  return RandomWeights{.dtype = dtype.value_or(defaults.dtype),
                       .seed = seed.value_or(defaults.seed),
                       .overrides = std::move(overrides)};
}

}  // namespace

absl::StatusOr<ModelPath> ParseModelPath(std::string_view path) {
  ModelPath parsed;
  if (!path.starts_with(kRandomPrefix)) {
    parsed.path = std::string(path);
  } else {
    const std::string_view rest = path.substr(kRandomPrefix.size());
    const size_t question = rest.find('?');
    parsed.path = std::string(rest.substr(0, question));
    parsed.random = RandomWeights();
    if (question != rest.npos) {
      const auto random = ParseOptions(rest.substr(question + 1));
      if (!random.ok()) return InFile(path, random.status());
      parsed.random = *random;
    }
  }
  if (parsed.path.empty()) {
    return absl::InvalidArgumentError(FormattedString(
        "the model path is %s, allowed: a folder, or random:FOLDER with "
        "?dtype=.. and &seed=..",
        Quoted(path)));
  }
  return parsed;
}

}  // namespace inlay
