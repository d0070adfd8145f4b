// C's strftime in the C locale, without the C library's locale and time zone.
#ifndef INLAY_CORE_TEXT_TEMPLATE_STRFTIME_H_
#define INLAY_CORE_TEXT_TEMPLATE_STRFTIME_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/time/civil_time.h"
#include "core/text/template/env.h"

namespace inlay::tmpl {

// Appends to `out`. Understands the conversions of C99 that need no zone
// (%z and %Z give nothing, as for a naive time in Python) and glibc's flags '-'
// (no padding) and '_'. INVALID_ARGUMENT for others.
absl::Status Strftime(const absl::CivilSecond& time, std::string_view format,
                      TextSink& out);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_STRFTIME_H_
