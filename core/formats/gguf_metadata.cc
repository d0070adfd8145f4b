#include "core/formats/gguf_metadata.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::Status BadKey(std::string_view key, const std::string& message) {
  return absl::InvalidArgumentError(
      FormattedString("key %s: %s", Quoted(key), message));
}

absl::Status WrongType(std::string_view key, const GgufValue& value,
                       std::string_view allowed) {
  return BadKey(key, FormattedString("a value of type %s%s, allowed: %s",
                                     value.is_array ? "array of " : "",
                                     GgufTypeName(value.type), allowed));
}

// Nullopt when it is no integer type; u64 beyond int64_t is INT64_MAX, which no
// bound here reaches.
std::optional<int64_t> IntAt(const GgufValue& value, uint64_t i) {
  const std::byte* at = value.data.data() + i * GgufTypeBytes(value.type);
  switch (value.type) {
    case GgufType::kU8:
      return LoadLittleEndian<uint8_t>(at);
    case GgufType::kI8:
      return LoadLittleEndian<int8_t>(at);
    case GgufType::kU16:
      return LoadLittleEndian<uint16_t>(at);
    case GgufType::kI16:
      return LoadLittleEndian<int16_t>(at);
    case GgufType::kU32:
      return LoadLittleEndian<uint32_t>(at);
    case GgufType::kI32:
      return LoadLittleEndian<int32_t>(at);
    case GgufType::kI64:
      return LoadLittleEndian<int64_t>(at);
    case GgufType::kU64: {
      const auto wide = LoadLittleEndian<uint64_t>(at);
      constexpr auto kMax = std::numeric_limits<int64_t>::max();
      return wide > static_cast<uint64_t>(kMax) ? kMax
                                                : static_cast<int64_t>(wide);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(const GgufValue& value, uint64_t i) {
  const std::byte* at = value.data.data() + i * GgufTypeBytes(value.type);
  if (value.type == GgufType::kF32) {
    return std::bit_cast<float>(LoadLittleEndian<uint32_t>(at));
  }
  if (value.type == GgufType::kF64) {
    return std::bit_cast<double>(LoadLittleEndian<uint64_t>(at));
  }
  const std::optional<int64_t> integer = IntAt(value, i);
  if (!integer.has_value()) return std::nullopt;
  return static_cast<double>(*integer);
}

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4) return false;
    uint32_t rune = lead & (0x3fu >> more);
    for (int j = 0; j < more; ++j, ++i) {
      if (i == text.size() || (text[i] & 0xc0) != 0x80) return false;
      rune = rune << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
    }
    const uint32_t least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
    if (rune < least || rune > 0x10ffff || (rune >> 11) == 0x1b) return false;
  }
  return true;
}

absl::StatusOr<std::string_view> NextString(std::string_view key,
                                            absl::Span<const std::byte>* data) {
  const auto length =
      static_cast<size_t>(LoadLittleEndian<uint64_t>(data->data()));
  const std::string_view text(
      reinterpret_cast<const char*>(data->data() + sizeof(uint64_t)), length);
  data->remove_prefix(sizeof(uint64_t) + length);
  if (IsUtf8(text)) return text;
  return BadKey(
      key, FormattedString("the text %s is not valid UTF-8", Quoted(text)));
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> GgufInt(const GgufHeader& header,
                                               std::string_view key,
                                               int64_t min, int64_t max) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_array ? std::nullopt : IntAt(*value, 0);
  if (!number.has_value()) return WrongType(key, *value, "an integer");
  if (*number >= min && *number <= max) return number;
  return BadKey(key,
                FormattedString("%d, allowed: %d to %d", *number, min, max));
}

absl::StatusOr<std::optional<int64_t>> GgufLayerInt(const GgufHeader& header,
                                                    std::string_view key,
                                                    int64_t layers, int64_t min,
                                                    int64_t max) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr || !value->is_array) {
    return GgufInt(header, key, min, max);
  }
  INLAY_ASSIGN_OR_RETURN(const auto found, GgufInts(header, key));
  const std::vector<int64_t> list = found.value_or(std::vector<int64_t>());
  if (list.empty() || list.size() != static_cast<size_t>(layers)) {
    return BadKey(key, FormattedString("%d values, allowed: one for each of %d "
                                       "layers",
                                       list.size(), layers));
  }
  for (const int64_t number : list) {
    if (number != list.front()) {
      return absl::UnimplementedError(FormattedString(
          "key %s: %d for one layer and %d for another, allowed: the same for "
          "all",
          Quoted(key), list.front(), number));
    }
  }
  const int64_t number = list.front();
  if (number >= min && number <= max) return std::optional<int64_t>(number);
  return BadKey(key,
                FormattedString("%d, allowed: %d to %d", number, min, max));
}

absl::StatusOr<std::optional<double>> GgufNumber(const GgufHeader& header,
                                                 std::string_view key) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->is_array ? std::nullopt : NumberAt(*value, 0);
  if (!number.has_value()) return WrongType(key, *value, "a number");
  if (std::isfinite(*number)) return number;
  return BadKey(key, FormattedString("%g, allowed: finite numbers", *number));
}

absl::StatusOr<std::optional<bool>> GgufBool(const GgufHeader& header,
                                             std::string_view key) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufType::kBool) {
    return WrongType(key, *value, "bool");
  }
  return std::optional<bool>(value->data[0] != std::byte{0});
}

absl::StatusOr<std::optional<std::string>> GgufString(const GgufHeader& header,
                                                      std::string_view key) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufType::kString) {
    return WrongType(key, *value, "string");
  }
  absl::Span<const std::byte> data = value->data;
  INLAY_ASSIGN_OR_RETURN(const std::string_view text, NextString(key, &data));
  return std::optional<std::string>(text);
}

absl::StatusOr<std::optional<std::vector<std::string_view>>> GgufStrings(
    const GgufHeader& header, std::string_view key) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || value->type != GgufType::kString) {
    return WrongType(key, *value, "array of string");
  }
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<size_t>(value->count));  // 8 bytes each are there
  absl::Span<const std::byte> data = value->data;
  while (!data.empty()) {
    INLAY_ASSIGN_OR_RETURN(const std::string_view text, NextString(key, &data));
    texts.push_back(text);
  }
  return std::optional(std::move(texts));
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufInts(
    const GgufHeader& header, std::string_view key) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  if (value->is_array && GgufTypeBytes(value->type) > 0) {
    numbers.reserve(static_cast<size_t>(value->count));
    for (uint64_t i = 0; i < value->count; ++i) {
      const std::optional<int64_t> number = IntAt(*value, i);
      if (!number.has_value()) break;
      numbers.push_back(*number);
    }
  }
  if (!value->is_array || numbers.size() != value->count) {
    return WrongType(key, *value, "array of integers");
  }
  return std::optional(std::move(numbers));
}

absl::StatusOr<std::optional<std::vector<double>>> GgufNumbers(
    const GgufHeader& header, std::string_view key) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  if (value->is_array && GgufTypeBytes(value->type) > 0) {
    numbers.reserve(static_cast<size_t>(value->count));
    for (uint64_t i = 0; i < value->count; ++i) {
      const std::optional<double> number = NumberAt(*value, i);
      if (!number.has_value()) break;
      if (!std::isfinite(*number)) {
        return BadKey(key, FormattedString("%g at index %d, allowed: finite "
                                           "numbers",
                                           *number, i));
      }
      numbers.push_back(*number);
    }
  }
  if (!value->is_array || numbers.size() != value->count) {
    return WrongType(key, *value, "array of numbers");
  }
  return std::optional(std::move(numbers));
}

}  // namespace inlay
