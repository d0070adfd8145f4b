// The one door through which JSON text enters: nlohmann-json behind caps on
// size and depth, with no exception leaving. Knows nothing of what the
// documents mean.
#ifndef INLAY_CORE_JSON_JSON_H_
#define INLAY_CORE_JSON_JSON_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay {

// Of values alone: what has them as an operand looks here too.
namespace json_value {
// Makes values a type of this library: what is specialised below is no other's.
template <typename T, typename Enable = void>
struct Serializer : nlohmann::adl_serializer<T, Enable> {};
}  // namespace json_value

// nlohmann's value, but that no destructor takes memory and that what throws
// std::bad_alloc leaks none. Copies, writers and the destructor take stack for
// each level of the value: what is not parsed here is not to be nested deeper
// than JsonLimits::max_depth either. What becomes an object or an array begins
// as one, not as null, whose change debug builds' checks do not survive.
template <template <typename, typename, typename...> typename Object>
using BasicJson = nlohmann::basic_json<Object, std::vector, std::string, bool,
                                       int64_t, uint64_t, double,
                                       std::allocator, json_value::Serializer>;
using Json = BasicJson<std::map>;
// Keeps the order of keys: what templates print depends on it. Not to be
// erased from: keys are copied in place of destroyed ones, which may throw.
using OrderedJson = BasicJson<nlohmann::ordered_map>;

namespace json_value {
// nlohmann's make a value of the text first, and are noexcept.
bool operator==(const Json& value, const char* text);
bool operator==(const OrderedJson& value, const char* text);
}  // namespace json_value

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
// The same for messages, cut so that a hostile file cannot blow them up.
std::string ShownJson(const Json& value);

// Typed lookups in an object. A missing or null key gives `fallback`; a value
// of another type (or a number that is not an integer, or out of [min, max]) is
// INVALID_ARGUMENT naming the key, the value got and the values allowed.
absl::StatusOr<int64_t> JsonInt(const Json& object, std::string_view key,
                                int64_t fallback, int64_t min, int64_t max);
absl::StatusOr<double> JsonNumber(const Json& object, std::string_view key,
                                  double fallback, double min, double max);
absl::StatusOr<bool> JsonBool(const Json& object, std::string_view key,
                              bool fallback);
// A flag that null switches off: `fallback` where it is absent alone.
absl::StatusOr<bool> JsonFlag(const Json& object, std::string_view key,
                              bool fallback);
absl::StatusOr<std::string> JsonString(const Json& object, std::string_view key,
                                       std::string_view fallback);

// The member, or nullptr when `object` is no object, has no such key, or holds
// null there.
const Json* JsonFind(const Json& object, std::string_view key);

}  // namespace inlay

// nlohmann's own put children on a heap stack in the destructor (of 3.10 to
// 3.12: another version may not compile), which ends the process where there is
// no memory for it, and leak an object whose list of members throws half-way.
template <>
void inlay::Json::json_value::destroy(value_t type);
template <>
void inlay::OrderedJson::json_value::destroy(value_t type);
template <>
inlay::Json::basic_json(initializer_list_t list, bool deduce, value_t type);
template <>
inlay::OrderedJson::basic_json(initializer_list_t list, bool deduce,
                               value_t type);

#endif  // INLAY_CORE_JSON_JSON_H_
