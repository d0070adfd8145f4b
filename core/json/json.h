// The one door through which JSON text enters: nlohmann-json behind caps on
// size and depth, with no exception leaving. Knows nothing of what the
// documents mean.
#ifndef INLAY_CORE_JSON_JSON_H_
#define INLAY_CORE_JSON_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace inlay {

using Json = nlohmann::json;
// Keeps the order of keys: what templates print depends on it.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  int max_depth = 64;
};

// Of an object that keeps the order of its keys.
inline constexpr size_t kMaxOrderedMembers = 1024;

// `what` names the document in messages ("config.json"). INVALID_ARGUMENT with
// the byte offset when the text is not JSON (RFC 8259; invalid UTF-8 in strings
// is refused), RESOURCE_EXHAUSTED above a limit.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what,
                               const JsonLimits& limits = {});
absl::StatusOr<OrderedJson> ParseOrderedJson(std::string_view text,
                                             std::string_view what,
                                             const JsonLimits& limits = {});

// Compact text; invalid UTF-8 in strings becomes U+FFFD instead of an
// exception.
std::string DumpJson(const Json& value);
std::string DumpJson(const OrderedJson& value);

// Typed lookups in an object. A missing or null key gives `fallback`; a value
// of another type (or a number that is not an integer, or out of [min, max]) is
// INVALID_ARGUMENT naming the key, the value got and the values allowed.
absl::StatusOr<int64_t> JsonInt(const Json& object, std::string_view key,
                                int64_t fallback, int64_t min, int64_t max);
absl::StatusOr<double> JsonNumber(const Json& object, std::string_view key,
                                  double fallback, double min, double max);
absl::StatusOr<bool> JsonBool(const Json& object, std::string_view key,
                              bool fallback);
absl::StatusOr<std::string> JsonString(const Json& object, std::string_view key,
                                       std::string_view fallback);

// The member, or nullptr when `object` is no object, has no such key, or holds
// null there.
const Json* JsonFind(const Json& object, std::string_view key);

}  // namespace inlay

#endif  // INLAY_CORE_JSON_JSON_H_
