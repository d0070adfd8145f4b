// Python's str() and repr() of values, floats and integers, and its names of
// types.
#ifndef INLAY_CORE_TEXT_TEMPLATE_PYTHON_REPR_H_
#define INLAY_CORE_TEXT_TEMPLATE_PYTHON_REPR_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

std::string_view TypeName(Kind kind);  // "dict", "str", "NoneType"
std::string_view TypeName(const Value& value);
std::string IntText(Int value);
std::string FloatText(double value);  // the shortest text that reads back

// Into `out`, which bounds them; errors only of nesting or budget.
absl::Status AppendStr(Env& env, const Value& value, TextSink& out);
absl::Status AppendRepr(Env& env, const Value& value, TextSink& out);
void AppendStringRepr(std::string_view text, TextSink& out);

absl::StatusOr<std::string> Str(Env& env, const Value& value);
// str(value) as a value; a string is returned as it is.
absl::StatusOr<Value> StrValue(Env& env, const Value& value);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_PYTHON_REPR_H_
