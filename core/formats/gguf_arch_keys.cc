#include "core/formats/gguf_arch_keys.h"

#include <algorithm>

#include "core/formats/gguf_metadata.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

std::string GgufArchKeys::Name(std::string_view key) const {
  return FormattedString("%s.%s", arch_, key);
}

const GgufValue* GgufArchKeys::Find(std::string_view key) const {
  return header_.Find(Name(key));
}

absl::StatusOr<std::optional<int64_t>> GgufArchKeys::Int(std::string_view key,
                                                         int64_t min,
                                                         int64_t max) const {
  return GgufInt(header_, Name(key), min, max);
}

absl::StatusOr<std::optional<int64_t>> GgufArchKeys::LayerInt(
    std::string_view key, int64_t layers, int64_t min, int64_t max) const {
  return GgufLayerInt(header_, Name(key), layers, min, max);
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufArchKeys::Ints(
    std::string_view key) const {
  return GgufInts(header_, Name(key));
}

absl::StatusOr<std::vector<int64_t>> GgufArchKeys::LayerInts(
    std::string_view key, int64_t layers, int64_t min, int64_t max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr || !value->is_array) {
    INLAY_ASSIGN_OR_RETURN(const int64_t one,
                           Required(key, Int(key, min, max)));
    return std::vector<int64_t>(static_cast<size_t>(layers), one);
  }
  INLAY_ASSIGN_OR_RETURN(const auto found, Ints(key));
  std::vector<int64_t> list = found.value_or(std::vector<int64_t>());
  const auto is_allowed = [&](int64_t one) { return min <= one && one <= max; };
  if (static_cast<int64_t>(list.size()) == layers &&
      std::all_of(list.begin(), list.end(), is_allowed)) {
    return list;
  }
  return absl::InvalidArgumentError(FormattedString(
      "%s: %d values, allowed: one from %d to %d for each of %d layers",
      Name(key), list.size(), min, max, layers));
}

absl::StatusOr<std::optional<double>> GgufArchKeys::Number(
    std::string_view key) const {
  return GgufNumber(header_, Name(key));
}

absl::StatusOr<std::optional<bool>> GgufArchKeys::Bool(
    std::string_view key) const {
  return GgufBool(header_, Name(key));
}

absl::StatusOr<std::optional<std::string>> GgufArchKeys::String(
    std::string_view key) const {
  return GgufString(header_, Name(key));
}

absl::StatusOr<int64_t> GgufArchKeys::Required(
    std::string_view key, absl::StatusOr<std::optional<int64_t>> found) const {
  INLAY_RETURN_IF_ERROR(found.status());
  if (found->has_value()) return **found;
  return absl::InvalidArgumentError(
      FormattedString("key \"%s\" is missing", Name(key)));
}

absl::Status GgufArchKeys::CopyNumber(std::string_view key, const char* to,
                                      Json* object) const {
  INLAY_ASSIGN_OR_RETURN(const auto number, Number(key));
  if (number.has_value()) (*object)[to] = *number;
  return absl::OkStatus();
}

}  // namespace inlay
