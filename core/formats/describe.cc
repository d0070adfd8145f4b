#include "core/formats/describe.h"

#include "absl/strings/escaping.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

constexpr size_t kMaxShownBytes = 96;

}  // namespace

absl::Status InFile(std::string_view file, const absl::Status& status) {
  return absl::Status(status.code(),
                      FormattedString("%s: %s", file, status.message()));
}

std::string Quoted(std::string_view text) {
  const std::string shown(text.substr(0, kMaxShownBytes));
  return FormattedString("\"%s\"%s", absl::CHexEscape(shown),
                         text.size() > kMaxShownBytes ? "..." : "");
}

}  // namespace inlay
