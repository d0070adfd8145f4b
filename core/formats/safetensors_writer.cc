#include "core/formats/safetensors_writer.h"

#include <cstring>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

const char* SafetensorsDType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kF8E4M3:
      return "F8_E4M3";
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(DurableFile file,
                         DurableFile::Create(path, FileReaders::kUmask));
  SafetensorsWriter writer(std::move(file));
  // What readers of other engines look for.
  writer.header_["__metadata__"] = {{"format", "pt"}};
  return writer;
}

absl::Status SafetensorsWriter::AddTensor(const std::string& name, DType dtype,
                                          absl::Span<const int64_t> shape) {
  const char* type = SafetensorsDType(dtype);
  if (type == nullptr || header_.contains(name)) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" of %s %s, allowed: f32, f16, bf16, i32, i64, i8, u8 "
        "and e4m3, each name once",
        name, DTypeName(dtype), type == nullptr ? "" : "is there already"));
  }
  uint64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 1) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor \"%s\" has the size %d, allowed: at least 1", name, size));
    }
    elements *= static_cast<uint64_t>(size);
  }
  const uint64_t end = data_bytes_ + RowBytes(dtype, elements);
  header_[name] = {{"dtype", type},
                   {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                   {"data_offsets", {data_bytes_, end}}};
  data_bytes_ = end;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::StartData() {
  std::string text = DumpJson(header_);
  // Data begins at a multiple of 8.
  text.append((8 - text.size() % 8) % 8, ' ');
  std::byte prefix[8];
  for (size_t i = 0; i < 8; ++i) {
    prefix[i] = static_cast<std::byte>(uint64_t{text.size()} >> 8 * i);
  }
  header_bytes_ = sizeof(prefix) + text.size();
  INLAY_RETURN_IF_ERROR(file_.Append(prefix));
  return file_.Append(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

absl::Status SafetensorsWriter::Append(absl::Span<const std::byte> bytes) {
  return file_.Append(bytes);
}

absl::Status SafetensorsWriter::Commit() {
  const uint64_t got = file_.num_bytes() - header_bytes_;
  if (got != data_bytes_) {
    return absl::InvalidArgumentError(FormattedString(
        "the tensors' data has %d bytes, allowed: %d", got, data_bytes_));
  }
  return file_.Commit();
}

}  // namespace inlay
