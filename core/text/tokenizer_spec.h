// What every section of a tokenizer.json is read by: {"type": ...} objects and
// patterns. Knows none of the types.
#ifndef INLAY_CORE_TEXT_TOKENIZER_SPEC_H_
#define INLAY_CORE_TEXT_TOKENIZER_SPEC_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// The "type" of `spec`; INVALID_ARGUMENT when it is no object with one.
// `section` names the part of the file in messages.
absl::StatusOr<std::string> SpecType(const Json& spec,
                                     std::string_view section);

// UNIMPLEMENTED naming the type.
absl::Status UnknownType(std::string_view type, std::string_view section);

// The array `key` of `spec`, valid as long as it; INVALID_ARGUMENT without.
absl::StatusOr<const Json*> SpecArray(const Json& spec, std::string_view key);

// The "pattern" member of Split and Replace: {"String": s} or {"Regex": s}.
struct PatternSpec {
  bool is_regex = false;
  std::string text;
};
absl::StatusOr<PatternSpec> ParsePattern(const Json& object);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TOKENIZER_SPEC_H_
