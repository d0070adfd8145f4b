#include "core/formats/integer_settings.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/formats/describe.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

void AddOnce(int64_t value, std::vector<int64_t>& values) {
  if (std::find(values.begin(), values.end(), value) == values.end()) {
    values.push_back(value);
  }
}

}  // namespace

absl::Status AddChoices(const Json& settings,
                        absl::Span<const int64_t> supported,
                        std::string_view place, LayerChoices& choices) {
  if (JsonFind(settings, "bits") != nullptr) {
    const auto bits = JsonInt(settings, "bits", 0, 0, 64);
    if (!bits.ok()) return InFile(place, bits.status());
    if (std::find(supported.begin(), supported.end(), *bits) ==
        supported.end()) {
      return UnsupportedSetting("bits", FormattedString("%d", *bits),
                                absl::StrJoin(supported, ", "), place);
    }
    AddOnce(*bits, choices.bits);
  }
  if (JsonFind(settings, "group_size") != nullptr) {
    const auto size = GroupSizeSetting(settings, 0, place);
    if (!size.ok()) return InFile(place, size.status());
    AddOnce(*size, choices.group_sizes);
  }
  const absl::Status symmetric = JsonBool(settings, "sym", true).status();
  return symmetric.ok() ? symmetric : InFile(place, symmetric);
}

absl::Status AddDefaultChoices(const Json& settings, int64_t bits,
                               absl::Span<const int64_t> supported,
                               LayerChoices& choices) {
  INLAY_RETURN_IF_ERROR(
      AddChoices(settings, supported, kConfigSettings, choices));
  if (choices.bits.empty() && bits == 0) {
    return UnsupportedSetting("bits", "null", absl::StrJoin(supported, ", "));
  }
  if (choices.bits.empty()) choices.bits.push_back(bits);
  if (choices.group_sizes.empty()) choices.group_sizes.push_back(128);
  return absl::OkStatus();
}

absl::Status AddDynamicChoices(const Json& config,
                               absl::Span<const int64_t> supported,
                               LayerChoices& choices) {
  const Json* dynamic = JsonFind(config, "dynamic");
  if (dynamic == nullptr) return absl::OkStatus();
  if (!dynamic->is_object()) {
    return BadSetting("dynamic", *dynamic, "an object");
  }
  for (const auto& [pattern, settings] : dynamic->items()) {
    if (pattern.starts_with("-:")) continue;
    const std::string place =
        FormattedString("%s's dynamic: %s", kConfigSettings, Quoted(pattern));
    if (!settings.is_object()) {
      return BadSetting(FormattedString("dynamic: %s", Quoted(pattern)),
                        settings, "an object");
    }
    INLAY_RETURN_IF_ERROR(AddChoices(settings, supported, place, choices));
    const absl::Status order = JsonBool(settings, "desc_act", false).status();
    if (!order.ok()) return InFile(place, order);
    INLAY_RETURN_IF_ERROR(CheckAbsent(settings, "adapter", place));
  }
  return absl::OkStatus();
}

absl::Status CheckAbsent(const Json& settings, std::string_view key,
                         std::string_view place) {
  const Json* value = JsonFind(settings, key);
  if (value == nullptr || *value == Json(false) || value->empty()) {
    return absl::OkStatus();
  }
  return UnsupportedSetting(key, ShownJson(*value), "none", place);
}

}  // namespace inlay
