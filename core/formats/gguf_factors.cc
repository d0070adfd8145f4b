#include "core/formats/gguf_factors.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kFactorSuffix = ".scale";

absl::Status BadFactor(std::string_view name, const std::string& message) {
  return absl::InvalidArgumentError(
      FormattedString("tensor %s: %s", Quoted(name), message));
}

}  // namespace

bool IsGgufFactor(const GgufArch& arch, std::string_view name) {
  return name.ends_with(kFactorSuffix) &&
         !PublishedTensorName(arch, name).has_value();
}

absl::StatusOr<WeightFactors> ReadGgufFactor(const GgufFiles& files,
                                             const GgufArch& arch,
                                             std::string_view name) {
  std::string weight_name(name.substr(0, name.size() - kFactorSuffix.size()));
  weight_name += ".weight";
  const GgufTensor* weight = files.FindTensor(weight_name);
  if (weight == nullptr) {
    return BadFactor(name, FormattedString("a factor of %s, which is not there",
                                           Quoted(weight_name)));
  }
  const auto published = PublishedTensorName(arch, weight_name);
  if (!published.has_value()) {
    return absl::UnimplementedError(
        FormattedString("tensor %s is none of the architecture \"%s\"",
                        Quoted(weight_name), arch.name));
  }
  INLAY_ASSIGN_OR_RETURN(std::optional<std::vector<float>> stored,
                         files.ReadVector(name));
  std::vector<float> values;
  if (stored.has_value()) values = *std::move(stored);
  const std::vector<int64_t>& shape = weight->info.shape;
  const auto matrices =
      static_cast<size_t>(shape.size() > 2 ? shape.front() : 1);
  if (values.size() != matrices) {
    return BadFactor(
        name, FormattedString("%d factors, allowed: %d, one for each matrix "
                              "of %s",
                              values.size(), matrices, Quoted(weight_name)));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return BadFactor(name, FormattedString("factor %d is %f, allowed: finite "
                                           "numbers",
                                           i, values[i]));
  }
  return WeightFactors{published->name, std::move(values)};
}

}  // namespace inlay
