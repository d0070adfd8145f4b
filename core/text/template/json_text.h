// JSON as Python's json.dumps writes it.
#ifndef INLAY_CORE_TEXT_TEMPLATE_JSON_TEXT_H_
#define INLAY_CORE_TEXT_TEMPLATE_JSON_TEXT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's; none: everything in a line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// INVALID_ARGUMENT for what JSON cannot hold (undefined values, macros, ...).
absl::StatusOr<std::string> ToJson(Env& env, const Value& value,
                                   const JsonStyle& style);

// INVALID_ARGUMENT for strings that are not UTF-8, RESOURCE_EXHAUSTED for
// values beyond the budget.
absl::StatusOr<Value> FromJson(Env& env, const OrderedJson& json,
                               int depth = 0);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_JSON_TEXT_H_
