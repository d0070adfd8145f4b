#include "core/json/json.h"

#include <algorithm>
#include <vector>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// nlohmann's parser keeps a heap stack, so deep nesting costs memory before any
// check of ours could run on the result: count brackets outside strings first.
// So are members: objects that keep their order look a key up among all others.
absl::Status CheckLimits(std::string_view text, std::string_view what,
                         const JsonLimits& limits, size_t max_members) {
  if (text.size() > limits.max_bytes) {
    return absl::ResourceExhaustedError(
        FormattedString("%s: %d bytes of JSON, at most %d allowed", what,
                        text.size(), limits.max_bytes));
  }
  int depth = 0;
  bool in_string = false;
  std::vector<size_t> commas(static_cast<size_t>(limits.max_depth) + 1);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limits.max_depth) {
        return absl::ResourceExhaustedError(FormattedString(
            "%s: JSON nested deeper than the %d levels allowed at byte %d",
            what, limits.max_depth, i));
      }
      commas[static_cast<size_t>(depth)] = 0;
    } else if (c == ']' || c == '}') {
      if (c == '}' && depth > 0 &&
          commas[static_cast<size_t>(depth)] >= max_members) {
        return absl::ResourceExhaustedError(
            FormattedString("%s: an object of more than the %d members allowed "
                            "ends at byte %d",
                            what, max_members, i));
      }
      depth = std::max(depth - 1, 0);
    } else if (c == ',') {
      ++commas[static_cast<size_t>(depth)];
    }
  }
  return absl::OkStatus();
}

// The parser's own words, which quote the input: cut and made printable.
std::string Printable(std::string_view what) {
  std::string text(what.substr(0, 160));
  for (char& c : text) {
    if (c < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

template <typename J>
absl::StatusOr<J> Parse(std::string_view text, std::string_view what,
                        const JsonLimits& limits, size_t max_members) {
  INLAY_RETURN_IF_ERROR(CheckLimits(text, what, limits, max_members));
  // nlohmann takes a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: not valid JSON at byte %d: a NUL byte", what, nul));
  }
  try {
    return J::parse(text);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(
        FormattedString("%s: not valid JSON at byte %d: %s", what, error.byte,
                        Printable(error.what())));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: not valid JSON: %s", what, Printable(error.what())));
  }
}

// Not in the middle of a character.
std::string Cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  const auto is_inside = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (most > 0 && is_inside(most)) --most;
  text.resize(most);
  return text + "...";
}

// The offending value in a message.
std::string Shown(const Json& value) {
  return Cut(
      value.is_structured() ? std::string(value.type_name()) : DumpJson(value),
      77);
}

template <typename J>
std::string Dump(const J& value) {
  return value.dump(-1, ' ', false, J::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view what,
                               const JsonLimits& limits) {
  return Parse<Json>(text, what, limits, SIZE_MAX);
}

absl::StatusOr<OrderedJson> ParseOrderedJson(std::string_view text,
                                             std::string_view what,
                                             const JsonLimits& limits) {
  return Parse<OrderedJson>(text, what, limits, kMaxOrderedMembers);
}

std::string DumpJson(const Json& value) { return Dump(value); }
std::string DumpJson(const OrderedJson& value) { return Dump(value); }

std::string ShownJson(const Json& value) {
  constexpr size_t kMost = 200;
  return Cut(DumpJson(value), kMost);
}

const Json* JsonFind(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

absl::StatusOr<int64_t> JsonInt(const Json& object, std::string_view key,
                                int64_t fallback, int64_t min, int64_t max) {
  const Json* value = JsonFind(object, key);
  if (value == nullptr) return fallback;
  const bool is_small = value->is_number_integer() &&
                        !(value->is_number_unsigned() &&
                          value->get<uint64_t>() > uint64_t{INT64_MAX});
  if (!is_small || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    return absl::InvalidArgumentError(
        FormattedString("\"%s\" is %s, allowed: an integer from %d to %d", key,
                        Shown(*value), min, max));
  }
  return value->get<int64_t>();
}

absl::StatusOr<double> JsonNumber(const Json& object, std::string_view key,
                                  double fallback, double min, double max) {
  const Json* value = JsonFind(object, key);
  if (value == nullptr) return fallback;
  // Written so that NaN fails too.
  if (!value->is_number() ||
      !(value->get<double>() >= min && value->get<double>() <= max)) {
    return absl::InvalidArgumentError(
        FormattedString("\"%s\" is %s, allowed: a number from %g to %g", key,
                        Shown(*value), min, max));
  }
  return value->get<double>();
}

absl::StatusOr<bool> JsonBool(const Json& object, std::string_view key,
                              bool fallback) {
  const Json* value = JsonFind(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return absl::InvalidArgumentError(FormattedString(
        "\"%s\" is %s, allowed: true or false", key, Shown(*value)));
  }
  return value->get<bool>();
}

absl::StatusOr<bool> JsonFlag(const Json& object, std::string_view key,
                              bool fallback) {
  const bool is_null = object.is_object() &&
                       object.contains(std::string(key)) &&
                       JsonFind(object, key) == nullptr;
  return JsonBool(object, key, !is_null && fallback);
}

absl::StatusOr<std::string> JsonString(const Json& object, std::string_view key,
                                       std::string_view fallback) {
  const Json* value = JsonFind(object, key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    return absl::InvalidArgumentError(
        FormattedString("\"%s\" is %s, allowed: a string", key, Shown(*value)));
  }
  return value->get<std::string>();
}

}  // namespace inlay
