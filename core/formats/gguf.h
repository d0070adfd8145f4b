// A GGUF file's header (versions 2 and 3), parsed and validated: a pure
// function over bytes. Knows nothing of files on disk, of what the keys mean or
// of models. Everything in a file is taken for hostile.
// Source: ggml's docs/gguf.md: magic, version, counts, key-values, tensor
// infos, padding to general.alignment, the data.
#ifndef INLAY_CORE_FORMATS_GGUF_H_
#define INLAY_CORE_FORMATS_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/weight_source.h"

namespace inlay {

inline constexpr uint64_t kMaxGgufHeaderBytes = uint64_t{1} << 30;
inline constexpr size_t kMaxGgufKeyBytes = 65535;
inline constexpr size_t kMaxGgufTensorName = 64;
inline constexpr uint32_t kMaxGgufRank = 4;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint32_t kGgufDefaultAlignment = 32;
inline constexpr uint32_t kMinGgufAlignment = 8;
inline constexpr uint32_t kMaxGgufAlignment = 1 << 20;

// The format's own numbers.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32"; empty for a number that is no type.
std::string_view GgufTypeName(GgufType type);
// Bytes of one value in the file; 0 for strings, arrays and what is no type.
size_t GgufTypeBytes(GgufType type);

// A checked value, as it lies in the file: little-endian numbers one after
// another; strings each behind a u64 length. No array is nested, every bool is
// 0 or 1.
struct GgufValue {
  GgufType type = GgufType::kU8;  // of the elements where it is an array
  bool is_array = false;
  uint64_t count = 1;
  absl::Span<const std::byte> data;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct GgufTensor {
  WeightInfo info;  // the name as the file has it; outermost dimension first
  uint64_t offset = 0;  // of the first byte, from the start of the file
};

// Keys and values point into the bytes that were parsed.
struct GgufHeader {
  uint32_t version = 0;
  std::vector<GgufEntry> entries;   // sorted by key
  std::vector<GgufTensor> tensors;  // sorted by name

  // Null when there is no such key.
  const GgufValue* Find(std::string_view key) const;
};

// `bytes`: the file from its start. OUT_OF_RANGE when they end before the
// header does although the file goes on: call again with more. Else
// INVALID_ARGUMENT naming key or tensor, what it has and what is allowed
// (overlapping or misaligned tensors, data beyond the file, repeated names and
// keys included), UNIMPLEMENTED for other versions, byte orders, tensor types
// and nested arrays, RESOURCE_EXHAUSTED above kMaxGgufHeaderBytes. Time and
// memory are proportional to the header's bytes (times a logarithm for
// sorting).
absl::StatusOr<GgufHeader> ParseGgufHeader(absl::Span<const std::byte> bytes,
                                           uint64_t file_bytes);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_H_
