// Python's two ways to format: "%s" % values and "{}".format(values).
#ifndef INLAY_CORE_TEXT_TEMPLATE_PYTHON_FORMAT_H_
#define INLAY_CORE_TEXT_TEMPLATE_PYTHON_FORMAT_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "core/text/template/callables.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

// INVALID_ARGUMENT for bad formats and missing or surplus values. Field widths
// and precisions are bounded before anything is padded.
absl::StatusOr<Value> FormatPercent(Env& env, std::string_view format,
                                    const Value& values);
absl::StatusOr<Value> FormatBraces(Env& env, std::string_view format,
                                   const CallArgs& args);

// One field, after its conversion has been decided.
struct FieldSpec {
  char32_t fill = ' ';
  char align = 0;  // one of "<>^=", or 0: by type
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// Text or a number as `spec` says, into `out`.
absl::Status AppendField(Env& env, const Value& value, const FieldSpec& spec,
                         TextSink& out);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_PYTHON_FORMAT_H_
