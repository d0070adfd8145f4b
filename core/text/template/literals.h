// Number and string literals, as Python and Jinja spell them.
#ifndef INLAY_CORE_TEXT_TEMPLATE_LITERALS_H_
#define INLAY_CORE_TEXT_TEMPLATE_LITERALS_H_

#include <string_view>

#include "absl/status/status.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

struct NumberLiteral {
  bool is_float = false;
  Int integer = 0;
  double real = 0;
  size_t end = 0;  // behind the literal
};

// Reads the literal that begins with the digit at `pos`. INVALID_ARGUMENT for
// an integer of more than 127 bits.
absl::Status ScanNumber(std::string_view source, size_t pos, bool allow_float,
                        NumberLiteral& out);

// An optional sign, then digits of `base` (0: by prefix), with single
// underscores between them, nothing else. False when `text` is none.
bool ParseInt(std::string_view text, int base, Int& out);
// Python's float(text).
bool ParseFloat(std::string_view text, double& out);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_LITERALS_H_
