// Reading of typed objects; see the header.
#include "core/text/tokenizer_spec.h"

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::string> SpecType(const Json& spec,
                                     std::string_view section) {
  const Json* type = JsonFind(spec, "type");
  if (type == nullptr || !type->is_string()) {
    return absl::InvalidArgumentError(
        FormattedString("%s: expected an object with a string \"type\", got %s",
                        section, spec.type_name()));
  }
  return type->get<std::string>();
}

absl::Status UnknownType(std::string_view type, std::string_view section) {
  return absl::UnimplementedError(FormattedString(
      "%s type \"%s\" is not supported", section, type.substr(0, 80)));
}

absl::StatusOr<const Json*> SpecArray(const Json& spec, std::string_view key) {
  const Json* list = JsonFind(spec, key);
  if (list == nullptr || !list->is_array()) {
    return absl::InvalidArgumentError(
        FormattedString("\"%s\" is missing or no array", key));
  }
  return list;
}

absl::StatusOr<PatternSpec> ParsePattern(const Json& object) {
  const Json* pattern = JsonFind(object, "pattern");
  if (pattern != nullptr) {
    for (const bool is_regex : {false, true}) {
      const Json* text = JsonFind(*pattern, is_regex ? "Regex" : "String");
      if (text != nullptr && text->is_string()) {
        return PatternSpec{is_regex, text->get<std::string>()};
      }
    }
  }
  return absl::InvalidArgumentError(
      "\"pattern\" is missing or not {\"String\": text} or {\"Regex\": text}");
}

}  // namespace inlay
