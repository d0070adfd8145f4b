// How this folder's errors name files and what stands in them. Owns nothing.
#ifndef INLAY_CORE_FORMATS_DESCRIBE_H_
#define INLAY_CORE_FORMATS_DESCRIBE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace inlay {

// `status` with "FILE: " before its message.
absl::Status InFile(std::string_view file, const absl::Status& status);

// A text from a file, quoted for a message: cut to a bounded length, bytes
// that are not printable ASCII escaped.
std::string Quoted(std::string_view text);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_DESCRIBE_H_
