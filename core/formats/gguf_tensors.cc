#include "core/formats/gguf_tensors.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/gguf_types.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Name length and a byte of name, rank, a dimension, type, offset.
constexpr uint64_t kMinInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;

absl::Status BadInfo(const WeightInfo& info, const std::string& message) {
  return absl::InvalidArgumentError(
      FormattedString("tensor %s: %s", Quoted(info.name), message));
}

absl::StatusOr<std::string> ParseName(uint64_t index, GgufCursor* cursor) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view name,
                         cursor->String("a tensor's name"));
  if (name.empty() || name.size() > kMaxGgufTensorName) {
    return absl::InvalidArgumentError(
        FormattedString("tensor %d: its name %s has %d bytes, allowed: 1 to %d",
                        index, Quoted(name), name.size(), kMaxGgufTensorName));
  }
  return std::string(name);
}

// The innermost dimension comes first in the file, last in a shape.
absl::Status ParseShape(GgufCursor* cursor, WeightInfo* info) {
  INLAY_ASSIGN_OR_RETURN(const uint32_t rank,
                         cursor->Integer<uint32_t>("a tensor's rank"));
  if (rank < 1 || rank > kMaxGgufRank) {
    return BadInfo(*info, FormattedString("%d dimensions, allowed: 1 to %d",
                                          rank, kMaxGgufRank));
  }
  for (uint32_t i = 0; i < rank; ++i) {
    INLAY_ASSIGN_OR_RETURN(const uint64_t size,
                           cursor->Integer<uint64_t>("a tensor's dimension"));
    if (size < 1 || size > static_cast<uint64_t>(INT64_MAX)) {
      return BadInfo(*info,
                     FormattedString("dimension %d is %d, allowed: 1 to %d", i,
                                     size, INT64_MAX));
    }
    info->shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(info->shape.begin(), info->shape.end());
  return absl::OkStatus();
}

// The dense size; INVALID_ARGUMENT before a product could wrap.
absl::Status SetBytes(uint64_t file_bytes, WeightInfo* info) {
  const FormatInfo& format = GetFormatInfo(info->dtype);
  const auto row = static_cast<uint64_t>(info->shape.back());
  const auto block = static_cast<uint64_t>(format.block_elements);
  if (row % block != 0) {
    return BadInfo(
        *info, FormattedString("rows of %d elements, allowed for %s: multiples "
                               "of %d",
                               row, format.name, block));
  }
  const uint64_t limit = file_bytes / static_cast<uint64_t>(format.block_bytes);
  uint64_t blocks = row / block;
  for (size_t i = 0; i + 1 < info->shape.size() && blocks <= limit; ++i) {
    const auto size = static_cast<uint64_t>(info->shape[i]);
    blocks = size > limit / blocks ? limit + 1 : blocks * size;
  }
  if (blocks > limit) {
    return BadInfo(
        *info,
        FormattedString("more bytes of data than the file's %d", file_bytes));
  }
  info->bytes = blocks * static_cast<uint64_t>(format.block_bytes);
  return absl::OkStatus();
}

absl::StatusOr<GgufTensor> ParseInfo(uint64_t index, uint64_t file_bytes,
                                     GgufCursor* cursor) {
  GgufTensor tensor;
  INLAY_ASSIGN_OR_RETURN(tensor.info.name, ParseName(index, cursor));
  INLAY_RETURN_IF_ERROR(ParseShape(cursor, &tensor.info));
  INLAY_ASSIGN_OR_RETURN(const uint32_t type,
                         cursor->Integer<uint32_t>("a tensor's type"));
  const auto dtype = DTypeFromGgmlType(type);
  if (!dtype.ok()) {
    return absl::Status(
        dtype.status().code(),
        FormattedString("tensor %s: %s", Quoted(tensor.info.name),
                        std::string(dtype.status().message())));
  }
  tensor.info.dtype = *dtype;
  INLAY_ASSIGN_OR_RETURN(tensor.offset,
                         cursor->Integer<uint64_t>("a tensor's offset"));
  INLAY_RETURN_IF_ERROR(SetBytes(file_bytes, &tensor.info));
  return tensor;
}

// Makes offsets relative to the file.
absl::Status PlaceData(uint64_t data_start, uint32_t alignment,
                       uint64_t file_bytes, GgufTensor* tensor) {
  const WeightInfo& info = tensor->info;
  if (tensor->offset % alignment != 0) {
    return BadInfo(info, FormattedString("offset %d, allowed: multiples of the "
                                         "alignment %d",
                                         tensor->offset, alignment));
  }
  const uint64_t data_bytes =
      file_bytes > data_start ? file_bytes - data_start : 0;
  if (tensor->offset > data_bytes || info.bytes > data_bytes - tensor->offset) {
    return BadInfo(
        info, FormattedString("%d bytes at offset %d of the data, which has "
                              "%d bytes",
                              info.bytes, tensor->offset, data_bytes));
  }
  tensor->offset += data_start;
  return absl::OkStatus();
}

absl::Status CheckOverlaps(const std::vector<GgufTensor>& tensors) {
  std::vector<const GgufTensor*> order;
  order.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = *order[i - 1];
    if (before.offset + before.info.bytes <= order[i]->offset) continue;
    return BadInfo(order[i]->info,
                   FormattedString("its data overlaps that of tensor %s",
                                   Quoted(before.info.name)));
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const std::vector<GgufTensor>& sorted) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].info.name != sorted[i].info.name) continue;
    return BadInfo(sorted[i].info, "there are several of this name");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GgufTensor>> ParseGgufTensors(uint64_t count,
                                                         uint32_t alignment,
                                                         uint64_t file_bytes,
                                                         GgufCursor* cursor) {
  if (count > cursor->left() / kMinInfoBytes) {
    return absl::InvalidArgumentError(
        FormattedString("%d tensors, but only %d bytes of the file are left",
                        count, cursor->left()));
  }
  std::vector<GgufTensor> tensors;
  for (uint64_t i = 0; i < count; ++i) {
    INLAY_ASSIGN_OR_RETURN(GgufTensor tensor, ParseInfo(i, file_bytes, cursor));
    tensors.push_back(std::move(tensor));
  }
  const uint64_t end = cursor->position();  // far from wrapping: in memory
  const uint64_t data_start = (end + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : tensors) {
    INLAY_RETURN_IF_ERROR(
        PlaceData(data_start, alignment, file_bytes, &tensor));
  }
  INLAY_RETURN_IF_ERROR(CheckOverlaps(tensors));
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.info.name < b.info.name;
  });
  INLAY_RETURN_IF_ERROR(CheckNames(tensors));
  return tensors;
}

}  // namespace inlay
