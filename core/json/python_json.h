// JSON as Python's json module writes it: with the bare tokens NaN, Infinity
// and -Infinity, which published config.json files contain and RFC 8259 does
// not know. Knows nothing of what the documents mean.
#ifndef INLAY_CORE_JSON_PYTHON_JSON_H_
#define INLAY_CORE_JSON_PYTHON_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// Each bare token becomes {"__float__": "Infinity"} and so on, as transformers
// 5 spells them. The document must be an object. `what` names it in messages.
// INVALID_ARGUMENT when it is malformed, RESOURCE_EXHAUSTED above a cap.
absl::StatusOr<Json> ParsePythonJson(std::string_view text,
                                     std::string_view what);

// The file at `path`, parsed so; null when there is no such file.
absl::StatusOr<Json> ReadOptionalPythonJson(const std::string& path);

}  // namespace inlay

#endif  // INLAY_CORE_JSON_PYTHON_JSON_H_
