#include "core/formats/quantized_settings.h"

#include <algorithm>
#include <string>

#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status UnsupportedSetting(std::string_view key, std::string_view got,
                                std::string_view allowed,
                                std::string_view place) {
  return absl::UnimplementedError(FormattedString(
      "%s's %s is %s; supported: %s", place, key, Quoted(got), allowed));
}

absl::Status BadSetting(std::string_view key, const Json& got,
                        std::string_view allowed, std::string_view place) {
  return absl::InvalidArgumentError(
      FormattedString("%s's %s is %s; allowed: %s", place, key,
                      Quoted(ShownJson(got)), allowed));
}

absl::StatusOr<int64_t> GroupSizeSetting(const Json& config, int64_t fallback,
                                         std::string_view place) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t size,
      JsonInt(config, "group_size", fallback, -1, kMaxQuantizedColumns));
  if (size == 0) {
    return BadSetting("group_size", size, "-1 (all columns) or more than 0",
                      place);
  }
  return size == -1 ? kMaxQuantizedColumns : size;
}

absl::StatusOr<ScaleGrid> BlockSetting(std::string_view key,
                                       const Json& block) {
  const auto is_size = [](const Json& size) {
    if (!size.is_number_integer()) return false;
    const auto value = size.get<int64_t>();
    return value >= 1 && value <= kMaxQuantizedColumns;
  };
  if (!block.is_array() || block.size() != 2 || !is_size(block[0]) ||
      !is_size(block[1])) {
    return BadSetting(
        key, block,
        FormattedString("two integers from 1 to %d", kMaxQuantizedColumns));
  }
  return ScaleGrid{block[0].get<int64_t>(), block[1].get<int64_t>()};
}

absl::Status CheckNames(const Json& config, std::string_view key,
                        std::string_view place) {
  const Json* names = JsonFind(config, key);
  if (names == nullptr ||
      (names->is_array() &&
       std::all_of(names->begin(), names->end(),
                   [](const Json& name) { return name.is_string(); }))) {
    return absl::OkStatus();
  }
  return BadSetting(key, *names, "a list of strings", place);
}

bool RoundsWeights(const Json& config) {
  const Json* method = JsonFind(config, "quant_method");
  if (method == nullptr) return true;
  const bool is_modelopt = *method == "modelopt";
  if (!is_modelopt && *method != "compressed-tensors") return true;
  const Json* groups = JsonFind(config, "config_groups");
  if (JsonFind(config, "quant_algo") != nullptr ||
      (groups != nullptr && !(groups->is_object() && groups->empty()))) {
    return true;
  }
  // ModelOpt says nothing at all of plain weights.
  return JsonFind(config, "kv_cache_scheme") == nullptr &&
         (groups != nullptr || !is_modelopt);
}

}  // namespace inlay
