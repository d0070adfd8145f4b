// GGUF files made by hand, right or wrong.
#ifndef INLAY_TESTS_CORE_FORMATS_GGUF_BYTES_H_
#define INLAY_TESTS_CORE_FORMATS_GGUF_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/formats/gguf.h"

namespace inlay {

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline std::string RawString(std::string_view text) {
  return Raw(uint64_t{text.size()}).append(text);
}

// A key-value pair: `data` are the value's bytes.
inline std::string Entry(std::string_view key, GgufType type,
                         const std::string& data) {
  return RawString(key) + Raw(static_cast<uint32_t>(type)) + data;
}
inline std::string U32Entry(std::string_view key, uint32_t value) {
  return Entry(key, GgufType::kU32, Raw(value));
}
inline std::string StringEntry(std::string_view key, std::string_view value) {
  return Entry(key, GgufType::kString, RawString(value));
}
inline std::string ArrayEntry(std::string_view key, GgufType type,
                              uint64_t count, const std::string& data) {
  return Entry(key, GgufType::kArray,
               Raw(static_cast<uint32_t>(type)) + Raw(count) + data);
}

// `dims`: innermost first, as files have them.
inline std::string Info(std::string_view name,
                        const std::vector<uint64_t>& dims, uint32_t type,
                        uint64_t offset) {
  std::string out = RawString(name) + Raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) out += Raw(dim);
  return out + Raw(type) + Raw(offset);
}

struct GgufParts {
  uint32_t version = 3;
  std::vector<std::string> entries;
  std::vector<std::string> infos;
  size_t alignment = 32;
  size_t data_bytes = 0;  // counting up from 0
  // Where the counts are to lie.
  int64_t num_entries = -1;
  int64_t num_tensors = -1;
};

inline std::string GgufBytes(const GgufParts& parts) {
  const auto count = [](int64_t said, size_t there) {
    return Raw(said < 0 ? uint64_t{there} : static_cast<uint64_t>(said));
  };
  std::string out = "GGUF" + Raw(parts.version);
  out += count(parts.num_tensors, parts.infos.size());
  out += count(parts.num_entries, parts.entries.size());
  for (const std::string& entry : parts.entries) out += entry;
  for (const std::string& info : parts.infos) out += info;
  while (out.size() % parts.alignment != 0) out.push_back('\0');
  for (size_t i = 0; i < parts.data_bytes; ++i) {
    out.push_back(static_cast<char>(i));
  }
  return out;
}

inline absl::Span<const std::byte> AsSpan(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace inlay

#endif  // INLAY_TESTS_CORE_FORMATS_GGUF_BYTES_H_
