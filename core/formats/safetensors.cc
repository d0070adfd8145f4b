#include "core/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/safetensors_json.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct DTypeSpelling {
  std::string_view name;
  DType dtype;
};

constexpr DTypeSpelling kDTypes[] = {
    {"F32", DType::kF32},        {"F16", DType::kF16},
    {"BF16", DType::kBF16},      {"F64", DType::kF64},
    {"I8", DType::kI8},          {"U8", DType::kU8},
    {"I16", DType::kI16},        {"U16", DType::kU16},
    {"I32", DType::kI32},        {"U32", DType::kU32},
    {"I64", DType::kI64},        {"BOOL", DType::kBool},
    {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2},
    {"F8_E8M0", DType::kU8},  // exponents: whoever reads them knows
};

absl::StatusOr<DType> DTypeOf(const SafetensorsEntry& entry) {
  std::string allowed;
  for (const DTypeSpelling& spelling : kDTypes) {
    if (spelling.name == entry.dtype) return spelling.dtype;
    allowed.append(allowed.empty() ? "" : ", ").append(spelling.name);
  }
  return absl::UnimplementedError(
      FormattedString("tensor %s has the data type %s, allowed: %s",
                      Quoted(entry.name), Quoted(entry.dtype), allowed));
}

// The dense size in bytes; nothing when it overflows, which no file can back.
std::optional<uint64_t> DenseBytes(const std::vector<uint64_t>& shape,
                                   DType dtype) {
  uint64_t bytes = static_cast<uint64_t>(GetFormatInfo(dtype).block_bytes);
  for (const uint64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes) || dim > INT64_MAX) {
      return std::nullopt;
    }
  }
  return bytes;
}

absl::StatusOr<SafetensorsTensor> CheckEntry(SafetensorsEntry entry,
                                             uint64_t data_start,
                                             uint64_t data_bytes, bool wanted) {
  SafetensorsTensor tensor;
  const uint64_t begin = entry.data_offsets[0];
  const uint64_t end = entry.data_offsets[1];
  if (begin > end || end > data_bytes) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s lies at bytes [%d, %d) of the data, allowed: "
        "a range within [0, %d)",
        Quoted(entry.name), begin, end, data_bytes));
  }
  if (!wanted) {
    tensor.info.name = std::move(entry.name);
    tensor.info.bytes = end - begin;
    tensor.offset = data_start + begin;
    return tensor;
  }
  INLAY_ASSIGN_OR_RETURN(tensor.info.dtype, DTypeOf(entry));
  const std::optional<uint64_t> bytes =
      DenseBytes(entry.shape, tensor.info.dtype);
  if (!bytes.has_value()) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %s: the size of its shape overflows 64 bits",
                        Quoted(entry.name)));
  }
  if (*bytes != end - begin) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s takes %d bytes of data, its shape and data type %s need %d",
        Quoted(entry.name), end - begin, entry.dtype, *bytes));
  }
  tensor.info.name = std::move(entry.name);
  tensor.info.shape.assign(entry.shape.begin(), entry.shape.end());
  tensor.info.bytes = *bytes;
  tensor.offset = data_start + begin;
  return tensor;
}

// The specification forbids overlaps and holes: sorted by place, each tensor
// begins where the one before ends. Reorders `tensors`.
absl::Status CheckCover(std::vector<SafetensorsTensor>& tensors,
                        uint64_t data_start, uint64_t file_bytes) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::tie(a.offset, a.info.bytes) <
                     std::tie(b.offset, b.info.bytes);
            });
  uint64_t expected = data_start;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.offset != expected) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s begins at byte %d of the data, %s; allowed: %d, where the "
          "tensor before it ends",
          Quoted(tensor.info.name), tensor.offset - data_start,
          tensor.offset < expected ? "inside another tensor" : "after a hole",
          expected - data_start));
    }
    expected += tensor.info.bytes;
  }
  if (expected != file_bytes) {
    return absl::InvalidArgumentError(FormattedString(
        "the tensors cover %d bytes, the file has %d bytes of data",
        expected - data_start, file_bytes - data_start));
  }
  return absl::OkStatus();
}

// Reorders `tensors`.
absl::Status SortByName(std::vector<SafetensorsTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return a.info.name < b.info.name;
            });
  const auto twin = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
        return a.info.name == b.info.name;
      });
  if (twin == tensors.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s appears twice in the header", Quoted(twin->info.name)));
}

}  // namespace

absl::StatusOr<uint64_t> SafetensorsDataStart(
    absl::Span<const std::byte> prefix, uint64_t file_bytes) {
  if (prefix.size() < kSafetensorsPrefixBytes ||
      file_bytes < kSafetensorsPrefixBytes) {
    return absl::InvalidArgumentError(FormattedString(
        "%d bytes are too few for a safetensors file", file_bytes));
  }
  if (std::memcmp(prefix.data(), "version ", kSafetensorsPrefixBytes) == 0) {
    return absl::InvalidArgumentError(
        "this is a Git LFS pointer, not the file itself; fetch it with "
        "\"git lfs pull\"");
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kSafetensorsPrefixBytes; ++i) {
    header_bytes |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  }
  const uint64_t allowed = std::min(kMaxSafetensorsHeaderBytes,
                                    file_bytes - kSafetensorsPrefixBytes);
  if (header_bytes > allowed) {
    return absl::InvalidArgumentError(FormattedString(
        "not a safetensors file, or cut short: a header of %d bytes, at most "
        "%d allowed in a file of %d bytes",
        header_bytes, allowed, file_bytes));
  }
  return kSafetensorsPrefixBytes + header_bytes;
}

absl::StatusOr<std::vector<SafetensorsTensor>> ParseSafetensorsHeader(
    absl::Span<const std::byte> bytes, uint64_t file_bytes,
    const TensorFilter& wanted) {
  INLAY_ASSIGN_OR_RETURN(const uint64_t data_start,
                         SafetensorsDataStart(bytes, file_bytes));
  if (bytes.size() < data_start) {
    return absl::InvalidArgumentError(FormattedString(
        "%d bytes given, the header ends at %d", bytes.size(), data_start));
  }
  const std::string_view json(
      reinterpret_cast<const char*>(bytes.data()) + kSafetensorsPrefixBytes,
      data_start - kSafetensorsPrefixBytes);
  if (json.empty() || json.front() != '{') {
    return absl::InvalidArgumentError(
        FormattedString("the header begins with %s, allowed: \"{\"",
                        Quoted(json.substr(0, 1))));
  }
  // nlohmann's parser takes a NUL for the end of the text.
  if (json.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(FormattedString(
        "the header holds a NUL at its byte %d", json.find('\0')));
  }
  INLAY_ASSIGN_OR_RETURN(
      std::vector<SafetensorsEntry> entries,
      ParseSafetensorsJson(json, {.max_rank = kMaxSafetensorsRank,
                                  .max_tensors = kMaxSafetensorsTensors}));
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(entries.size());
  for (SafetensorsEntry& entry : entries) {
    const bool keep = wanted == nullptr || wanted(entry.name);
    INLAY_ASSIGN_OR_RETURN(SafetensorsTensor tensor,
                           CheckEntry(std::move(entry), data_start,
                                      file_bytes - data_start, keep));
    tensors.push_back(std::move(tensor));
  }
  INLAY_RETURN_IF_ERROR(CheckCover(tensors, data_start, file_bytes));
  INLAY_RETURN_IF_ERROR(SortByName(tensors));
  if (wanted == nullptr) return tensors;
  std::erase_if(tensors, [&](const SafetensorsTensor& tensor) {
    return !wanted(tensor.info.name);
  });
  return tensors;
}

}  // namespace inlay
