#include "core/formats/gguf.h"

#include <algorithm>
#include <cstring>

#include "core/formats/describe.h"
#include "core/formats/gguf_cursor.h"
#include "core/formats/gguf_tensors.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kMagic[] = "GGUF";
constexpr uint32_t kNewestVersion = 3;
// Key length and a byte of key, type, a byte of value.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;

struct TypeRow {
  std::string_view name;
  size_t bytes;
};

// By the format's number.
constexpr TypeRow kValueTypes[] = {
    {"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
    {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
    {"u64", 8}, {"i64", 8}, {"f64", 8}};

absl::StatusOr<uint32_t> ParseVersion(GgufCursor* cursor) {
  INLAY_ASSIGN_OR_RETURN(const auto magic,
                         cursor->Take(4, 1, "the magic number"));
  if (std::memcmp(magic.data(), kMagic, 4) != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "no GGUF file: it begins with %s, allowed: \"GGUF\"",
        Quoted({reinterpret_cast<const char*>(magic.data()), 4})));
  }
  INLAY_ASSIGN_OR_RETURN(const uint32_t version,
                         cursor->Integer<uint32_t>("the version"));
  if (version != 0 && (version & 0xffff) == 0) {
    return absl::UnimplementedError(FormattedString(
        "the version reads as %d: the file is big-endian, allowed: "
        "little-endian files (converters have an option for it)",
        version));
  }
  if (version == 1) {
    return absl::UnimplementedError(
        "GGUF version 1 (counts of 32 bits), allowed: 2 and 3; convert the "
        "model anew");
  }
  if (version < 1 || version > kNewestVersion) {
    return absl::UnimplementedError(FormattedString(
        "GGUF version %d, allowed: 2 and %d", version, kNewestVersion));
  }
  return version;
}

absl::Status BadValue(std::string_view key, const std::string& message) {
  return absl::InvalidArgumentError(
      FormattedString("key %s: %s", Quoted(key), message));
}

absl::StatusOr<GgufType> ParseType(std::string_view key, GgufCursor* cursor) {
  INLAY_ASSIGN_OR_RETURN(const uint32_t number,
                         cursor->Integer<uint32_t>("a value's type"));
  if (number >= std::size(kValueTypes)) {
    return BadValue(key, FormattedString("value type %d, allowed: 0 to %d",
                                         number, std::size(kValueTypes) - 1));
  }
  return static_cast<GgufType>(number);
}

absl::Status ParseStrings(std::string_view key, GgufCursor* cursor,
                          GgufValue* value) {
  if (value->count > cursor->left() / sizeof(uint64_t)) {
    return BadValue(
        key,
        FormattedString("%d strings, but only %d bytes of the file are left",
                        value->count, cursor->left()));
  }
  const uint64_t begin = cursor->position();
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto text = cursor->String("a string");
    if (absl::IsOutOfRange(text.status())) return text.status();
    if (!text.ok()) return BadValue(key, std::string(text.status().message()));
  }
  value->data = cursor->Since(begin);
  return absl::OkStatus();
}

absl::Status CheckBools(std::string_view key, const GgufValue& value) {
  const auto wrong = std::find_if(value.data.begin(), value.data.end(),
                                  [](std::byte b) { return b > std::byte{1}; });
  if (wrong == value.data.end()) return absl::OkStatus();
  return BadValue(key, FormattedString("the bool %d, allowed: 0 and 1",
                                       static_cast<int>(*wrong)));
}

absl::StatusOr<GgufValue> ParseValue(std::string_view key, GgufCursor* cursor) {
  GgufValue value;
  INLAY_ASSIGN_OR_RETURN(value.type, ParseType(key, cursor));
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    INLAY_ASSIGN_OR_RETURN(value.type, ParseType(key, cursor));
    if (value.type == GgufType::kArray) {
      return absl::UnimplementedError(FormattedString(
          "key %s: an array of arrays, allowed: arrays of numbers, bools or "
          "strings",
          Quoted(key)));
    }
    INLAY_ASSIGN_OR_RETURN(value.count,
                           cursor->Integer<uint64_t>("an array's length"));
  }
  if (value.type == GgufType::kString) {
    INLAY_RETURN_IF_ERROR(ParseStrings(key, cursor, &value));
    return value;
  }
  const auto data =
      cursor->Take(value.count, GgufTypeBytes(value.type), "a value");
  if (absl::IsOutOfRange(data.status())) return data.status();
  if (!data.ok()) return BadValue(key, std::string(data.status().message()));
  value.data = *data;
  if (value.type == GgufType::kBool) {
    INLAY_RETURN_IF_ERROR(CheckBools(key, value));
  }
  return value;
}

absl::StatusOr<std::vector<GgufEntry>> ParseEntries(uint64_t count,
                                                    GgufCursor* cursor) {
  if (count > cursor->left() / kMinEntryBytes) {
    return absl::InvalidArgumentError(
        FormattedString("%d keys, but only %d bytes of the file are left",
                        count, cursor->left()));
  }
  std::vector<GgufEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    INLAY_ASSIGN_OR_RETURN(entry.key, cursor->String("a key"));
    if (entry.key.empty() || entry.key.size() > kMaxGgufKeyBytes) {
      return absl::InvalidArgumentError(
          FormattedString("key %d has %d bytes, allowed: 1 to %d", i,
                          entry.key.size(), kMaxGgufKeyBytes));
    }
    INLAY_ASSIGN_OR_RETURN(entry.value, ParseValue(entry.key, cursor));
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i - 1].key != entries[i].key) continue;
    return BadValue(entries[i].key, "it is there several times");
  }
  return entries;
}

absl::StatusOr<uint32_t> ParseAlignment(const GgufHeader& header) {
  const GgufValue* value = header.Find(kGgufAlignmentKey);
  if (value == nullptr) return kGgufDefaultAlignment;
  if (value->is_array || value->type != GgufType::kU32) {
    return BadValue(kGgufAlignmentKey,
                    FormattedString("a value of type %s%s, allowed: u32",
                                    value->is_array ? "array of " : "",
                                    GgufTypeName(value->type)));
  }
  const auto alignment = LoadLittleEndian<uint32_t>(value->data.data());
  if (alignment < kMinGgufAlignment || alignment > kMaxGgufAlignment ||
      (alignment & (alignment - 1)) != 0) {
    return BadValue(
        kGgufAlignmentKey,
        FormattedString("%d, allowed: a power of two from %d to %d", alignment,
                        kMinGgufAlignment, kMaxGgufAlignment));
  }
  return alignment;
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kValueTypes) ? kValueTypes[number].name : "";
}

size_t GgufTypeBytes(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kValueTypes) ? kValueTypes[number].bytes : 0;
}

const GgufValue* GgufHeader::Find(std::string_view key) const {
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), key,
      [](const GgufEntry& entry, std::string_view k) { return entry.key < k; });
  if (found == entries.end() || found->key != key) return nullptr;
  return &found->value;
}

absl::StatusOr<GgufHeader> ParseGgufHeader(absl::Span<const std::byte> bytes,
                                           uint64_t file_bytes) {
  GgufCursor cursor(
      bytes.subspan(0, std::min(bytes.size(), kMaxGgufHeaderBytes)),
      file_bytes);
  const auto parse = [&]() -> absl::StatusOr<GgufHeader> {
    GgufHeader header;
    INLAY_ASSIGN_OR_RETURN(header.version, ParseVersion(&cursor));
    INLAY_ASSIGN_OR_RETURN(const uint64_t tensors,
                           cursor.Integer<uint64_t>("the number of tensors"));
    INLAY_ASSIGN_OR_RETURN(const uint64_t entries,
                           cursor.Integer<uint64_t>("the number of keys"));
    INLAY_ASSIGN_OR_RETURN(header.entries, ParseEntries(entries, &cursor));
    INLAY_ASSIGN_OR_RETURN(const uint32_t alignment, ParseAlignment(header));
    INLAY_ASSIGN_OR_RETURN(
        header.tensors,
        ParseGgufTensors(tensors, alignment, file_bytes, &cursor));
    return header;
  };
  auto header = parse();
  if (absl::IsOutOfRange(header.status()) &&
      bytes.size() >= kMaxGgufHeaderBytes) {
    return absl::ResourceExhaustedError(FormattedString(
        "the header has more than the %d bytes allowed", kMaxGgufHeaderBytes));
  }
  return header;
}

}  // namespace inlay
