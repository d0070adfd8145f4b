// Typed access to the keys of a GGUF header. Knows no key by name.
#ifndef INLAY_CORE_FORMATS_GGUF_METADATA_H_
#define INLAY_CORE_FORMATS_GGUF_METADATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf.h"

namespace inlay {

// Of all: nullopt when there is no such key; INVALID_ARGUMENT naming the key,
// what it has and what is allowed for another type, a value out of bounds, a
// number that is not finite, text that is not UTF-8.

// Any integer type.
absl::StatusOr<std::optional<int64_t>> GgufInt(const GgufHeader& header,
                                               std::string_view key,
                                               int64_t min, int64_t max);
// One integer, or an array (one for each of `layers`) whose members agree;
// UNIMPLEMENTED where they do not.
absl::StatusOr<std::optional<int64_t>> GgufLayerInt(const GgufHeader& header,
                                                    std::string_view key,
                                                    int64_t layers, int64_t min,
                                                    int64_t max);
// Any number type.
absl::StatusOr<std::optional<double>> GgufNumber(const GgufHeader& header,
                                                 std::string_view key);
absl::StatusOr<std::optional<bool>> GgufBool(const GgufHeader& header,
                                             std::string_view key);
absl::StatusOr<std::optional<std::string>> GgufString(const GgufHeader& header,
                                                      std::string_view key);

// Arrays. The views point where the header's do.
absl::StatusOr<std::optional<std::vector<std::string_view>>> GgufStrings(
    const GgufHeader& header, std::string_view key);
absl::StatusOr<std::optional<std::vector<int64_t>>> GgufInts(
    const GgufHeader& header, std::string_view key);
absl::StatusOr<std::optional<std::vector<double>>> GgufNumbers(
    const GgufHeader& header, std::string_view key);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_METADATA_H_
