#include "core/formats/gguf_writer.h"

#include <bit>
#include <optional>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/gguf_types.h"
#include "memory/formatted_string.h"
#include "memory/little_endian.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 48;

template <typename T>
void AppendInteger(T value, std::string* out) {
  std::byte bytes[sizeof(T)];
  StoreLittleEndian(value, bytes);
  out->append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

void AppendString(std::string_view text, std::string* out) {
  AppendInteger<uint64_t>(text.size(), out);
  out->append(text);
}

template <typename T>
std::string Bytes(absl::Span<const T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

absl::Span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::Status BadTensor(std::string_view name, const std::string& message) {
  return absl::InvalidArgumentError(
      FormattedString("tensor %s: %s", Quoted(name), message));
}

absl::StatusOr<uint64_t> TensorBytes(std::string_view name, DType dtype,
                                     absl::Span<const int64_t> shape) {
  if (shape.empty() || shape.size() > kMaxGgufRank) {
    return BadTensor(name, FormattedString("%d dimensions, allowed: 1 to %d",
                                           shape.size(), kMaxGgufRank));
  }
  const FormatInfo& format = GetFormatInfo(dtype);
  if (shape.back() % format.block_elements != 0) {
    return BadTensor(
        name,
        FormattedString("rows of %d elements, allowed for %s: multiples "
                        "of %d",
                        shape.back(), format.name, format.block_elements));
  }
  uint64_t bytes = static_cast<uint64_t>(format.block_bytes);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t size =
        i + 1 == shape.size() ? shape[i] / format.block_elements : shape[i];
    if (size < 1 || static_cast<uint64_t>(size) > kMaxTensorBytes / bytes) {
      return BadTensor(
          name, FormattedString("dimension %d is %d, allowed: at least 1 and "
                                "%d bytes in all",
                                i, shape[i], kMaxTensorBytes));
    }
    bytes *= static_cast<uint64_t>(size);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<GgufWriter> GgufWriter::Create(const std::string& path,
                                              uint32_t alignment) {
  if (alignment < kMinGgufAlignment || alignment > kMaxGgufAlignment ||
      !std::has_single_bit(alignment)) {
    return absl::InvalidArgumentError(FormattedString(
        "an alignment of %d, allowed: a power of two from %d to %d", alignment,
        kMinGgufAlignment, kMaxGgufAlignment));
  }
  INLAY_ASSIGN_OR_RETURN(DurableFile file,
                         DurableFile::Create(path, FileReaders::kUmask));
  GgufWriter writer(std::move(file), alignment);
  if (alignment != kGgufDefaultAlignment) {
    std::string value;
    AppendInteger(alignment, &value);
    INLAY_RETURN_IF_ERROR(
        writer.AddEntry(kGgufAlignmentKey, GgufType::kU32, false, 1, value));
  } else {
    writer.keys_.emplace(kGgufAlignmentKey);
  }
  return writer;
}

absl::Status GgufWriter::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return status_;
}

absl::Status GgufWriter::AddEntry(std::string_view key, GgufType type,
                                  bool is_array, uint64_t count,
                                  std::string_view data) {
  INLAY_RETURN_IF_ERROR(status_);
  if (in_data_ || key.empty() || key.size() > kMaxGgufKeyBytes ||
      !keys_.emplace(key).second) {
    return Fail(absl::InvalidArgumentError(FormattedString(
        "key %s of %d bytes, allowed: one that is not there yet, 1 to %d "
        "bytes, before the data",
        Quoted(key), key.size(), kMaxGgufKeyBytes)));
  }
  AppendString(key, &entries_);
  if (is_array) {
    AppendInteger(static_cast<uint32_t>(GgufType::kArray), &entries_);
  }
  AppendInteger(static_cast<uint32_t>(type), &entries_);
  if (is_array) AppendInteger(count, &entries_);
  entries_.append(data);
  return absl::OkStatus();
}

absl::Status GgufWriter::SetU32(std::string_view key, uint32_t value) {
  return AddEntry(key, GgufType::kU32, false, 1, Bytes<uint32_t>({value}));
}

absl::Status GgufWriter::SetI32(std::string_view key, int32_t value) {
  return AddEntry(key, GgufType::kI32, false, 1, Bytes<int32_t>({value}));
}

absl::Status GgufWriter::SetU64(std::string_view key, uint64_t value) {
  return AddEntry(key, GgufType::kU64, false, 1, Bytes<uint64_t>({value}));
}

absl::Status GgufWriter::SetF32(std::string_view key, float value) {
  return AddEntry(key, GgufType::kF32, false, 1, Bytes<float>({value}));
}

absl::Status GgufWriter::SetBool(std::string_view key, bool value) {
  return AddEntry(key, GgufType::kBool, false, 1,
                  std::string(1, value ? '\1' : '\0'));
}

absl::Status GgufWriter::SetString(std::string_view key,
                                   std::string_view value) {
  std::string data;
  AppendString(value, &data);
  return AddEntry(key, GgufType::kString, false, 1, data);
}

absl::Status GgufWriter::SetBytes(std::string_view key,
                                  std::string_view bytes) {
  return AddEntry(key, GgufType::kU8, true, bytes.size(), bytes);
}

absl::Status GgufWriter::SetI32s(std::string_view key,
                                 absl::Span<const int32_t> values) {
  return AddEntry(key, GgufType::kI32, true, values.size(), Bytes(values));
}

absl::Status GgufWriter::SetF32s(std::string_view key,
                                 absl::Span<const float> values) {
  return AddEntry(key, GgufType::kF32, true, values.size(), Bytes(values));
}

absl::Status GgufWriter::SetStrings(std::string_view key,
                                    absl::Span<const std::string> values) {
  std::string data;
  for (const std::string& value : values) AppendString(value, &data);
  return AddEntry(key, GgufType::kString, true, values.size(), data);
}

absl::Status GgufWriter::Set(std::string_view key, const GgufValue& value) {
  return AddEntry(
      key, value.type, value.is_array, value.count,
      {reinterpret_cast<const char*>(value.data.data()), value.data.size()});
}

absl::Status GgufWriter::AddTensor(std::string_view name, DType dtype,
                                   absl::Span<const int64_t> shape) {
  INLAY_RETURN_IF_ERROR(status_);
  if (in_data_ || name.empty() || name.size() > kMaxGgufTensorName ||
      !names_.emplace(name).second) {
    return Fail(BadTensor(
        name, FormattedString("a name of %d bytes, allowed: one that is not "
                              "there yet, 1 to %d bytes, before the data",
                              name.size(), kMaxGgufTensorName)));
  }
  const std::optional<uint32_t> type = GgmlTypeFromDType(dtype);
  if (!type.has_value()) {
    return Fail(absl::UnimplementedError(FormattedString(
        "tensor %s: GGUF has no type %s", Quoted(name), DTypeName(dtype))));
  }
  const auto bytes = TensorBytes(name, dtype, shape);
  if (!bytes.ok()) return Fail(bytes.status());
  tensors_.push_back({std::string(name), *type,
                      std::vector<int64_t>(shape.begin(), shape.end()),
                      *bytes});
  return absl::OkStatus();
}

absl::Status GgufWriter::Pad() {
  const uint64_t over = file_.num_bytes() % alignment_;
  if (over == 0) return absl::OkStatus();
  return file_.Append(AsBytes(std::string(alignment_ - over, '\0')));
}

absl::Status GgufWriter::StartData() {
  INLAY_RETURN_IF_ERROR(status_);
  if (in_data_) {
    return Fail(absl::InvalidArgumentError("the data has begun already"));
  }
  in_data_ = true;
  std::string head = "GGUF";
  AppendInteger(kVersion, &head);
  AppendInteger<uint64_t>(tensors_.size(), &head);
  // The default alignment is a known key without an entry.
  const bool has_alignment = alignment_ != kGgufDefaultAlignment;
  AppendInteger<uint64_t>(keys_.size() - (has_alignment ? 0 : 1), &head);
  head += entries_;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    AppendString(tensor.name, &head);
    AppendInteger(static_cast<uint32_t>(tensor.shape.size()), &head);
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      AppendInteger(static_cast<uint64_t>(tensor.shape[i]), &head);
    }
    AppendInteger(tensor.type, &head);
    AppendInteger(offset, &head);
    offset += (tensor.bytes + alignment_ - 1) / alignment_ * alignment_;
  }
  INLAY_RETURN_IF_ERROR(Fail(file_.Append(AsBytes(head))));
  return Fail(Pad());
}

absl::Status GgufWriter::Append(absl::Span<const std::byte> bytes) {
  INLAY_RETURN_IF_ERROR(status_);
  if (bytes.empty()) return absl::OkStatus();
  const uint64_t left = !in_data_ || current_ == tensors_.size()
                            ? 0
                            : tensors_[current_].bytes - written_;
  if (bytes.size() > left) {
    return Fail(absl::InvalidArgumentError(FormattedString(
        "%d bytes of data, allowed here: %d", bytes.size(), left)));
  }
  INLAY_RETURN_IF_ERROR(Fail(file_.Append(bytes)));
  written_ += bytes.size();
  if (written_ < tensors_[current_].bytes) return absl::OkStatus();
  ++current_;
  written_ = 0;
  return Fail(Pad());
}

absl::Status GgufWriter::Commit() {
  INLAY_RETURN_IF_ERROR(status_);
  if (!in_data_) INLAY_RETURN_IF_ERROR(StartData());
  if (current_ != tensors_.size()) {
    return Fail(BadTensor(tensors_[current_].name,
                          FormattedString("%d of %d bytes were appended",
                                          written_, tensors_[current_].bytes)));
  }
  return Fail(file_.Commit());
}

}  // namespace inlay
