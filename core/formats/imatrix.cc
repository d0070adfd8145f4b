#include "core/formats/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/gguf_cursor.h"
#include "core/formats/gguf_files.h"
#include "core/formats/gguf_metadata.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

absl::Status CheckSquares(absl::Span<const float> values,
                          std::string_view what) {
  for (const float value : values) {
    if (std::isfinite(value) && value >= 0.0f) continue;
    return absl::InvalidArgumentError(FormattedString(
        "%s has %g, allowed: finite numbers from 0 on", what, value));
  }
  return absl::OkStatus();
}

std::vector<float> Floats(absl::Span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits =
        LoadLittleEndian<uint32_t>(bytes.data() + i * sizeof(float));
    std::memcpy(&values[i], &bits, sizeof(float));
  }
  return values;
}

class GgufImatrix {
 public:
  explicit GgufImatrix(const GgufFiles& files) : files_(files) {}

  absl::StatusOr<Imatrix> Read() const {
    INLAY_ASSIGN_OR_RETURN(const std::optional<std::string> type,
                           GgufString(files_.header(), "general.type"));
    if (type != "imatrix") {
      return absl::InvalidArgumentError(FormattedString(
          "general.type is %s, allowed: \"imatrix\"",
          type.has_value() ? Quoted(*type) : std::string("not there")));
    }
    if (files_.files.size() != 1) {
      return absl::InvalidArgumentError("split files, allowed: one");
    }
    Imatrix imatrix;
    for (const GgufTensor& tensor : files_.header().tensors) {
      std::string_view name = tensor.info.name;
      if (name.ends_with(kCounts)) continue;
      if (!name.ends_with(kSums)) {
        return absl::InvalidArgumentError(
            FormattedString("tensor %s, allowed: names that end in %s or %s",
                            Quoted(name), kSums, kCounts));
      }
      name.remove_suffix(kSums.size());
      INLAY_ASSIGN_OR_RETURN(imatrix[std::string(name)],
                             ReadEntry(tensor, std::string(name)));
    }
    return imatrix;
  }

 private:
  absl::StatusOr<std::vector<float>> ReadTensor(
      const GgufTensor& tensor) const {
    const std::string what = FormattedString("tensor %s", tensor.info.name);
    if (tensor.info.dtype != DType::kF32) {
      return absl::InvalidArgumentError(FormattedString(
          "%s is %s, allowed: f32", what, DTypeName(tensor.info.dtype)));
    }
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.info.bytes));
    INLAY_RETURN_IF_ERROR(
        files_.files.front().Read(tensor.offset, absl::MakeSpan(bytes)));
    std::vector<float> values = Floats(bytes);
    INLAY_RETURN_IF_ERROR(CheckSquares(values, what));
    return values;
  }

  absl::StatusOr<std::vector<float>> ReadEntry(const GgufTensor& sums,
                                               const std::string& name) const {
    const GgufTensor* counts = files_.FindTensor(name + std::string(kCounts));
    if (counts == nullptr) {
      return absl::InvalidArgumentError(
          FormattedString("tensor %s%s is not there", name, kCounts));
    }
    INLAY_ASSIGN_OR_RETURN(std::vector<float> values, ReadTensor(sums));
    INLAY_ASSIGN_OR_RETURN(const std::vector<float> tokens,
                           ReadTensor(*counts));
    if (values.size() % tokens.size() != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s has %d sums and %d counts, which do not divide them", name,
          values.size(), tokens.size()));
    }
    const size_t inputs = values.size() / tokens.size();
    for (size_t i = 0; i < values.size(); ++i) {
      const float count = std::round(tokens[i / inputs]);
      values[i] = count > 0.0f ? values[i] / count : 1.0f;
    }
    return values;
  }

  const GgufFiles& files_;
};

}  // namespace

absl::StatusOr<Imatrix> ParseOldImatrix(absl::Span<const std::byte> bytes) {
  GgufCursor cursor(bytes, bytes.size());
  // The numbers are ints in it.
  const auto number = [&](std::string_view what,
                          int64_t least) -> absl::StatusOr<int64_t> {
    INLAY_ASSIGN_OR_RETURN(const auto bits, cursor.Integer<uint32_t>(what));
    const auto value = static_cast<int32_t>(bits);
    if (value >= least) return value;
    return absl::InvalidArgumentError(
        FormattedString("%s is %d, allowed: at least %d", what, value, least));
  };
  INLAY_ASSIGN_OR_RETURN(const int64_t entries, number("entries", 1));
  Imatrix imatrix;
  for (int64_t i = 0; i < entries; ++i) {
    INLAY_ASSIGN_OR_RETURN(const int64_t length,
                           number("an entry's name's length", 1));
    INLAY_ASSIGN_OR_RETURN(
        const auto name_bytes,
        cursor.Take(static_cast<uint64_t>(length), 1, "an entry's name"));
    const std::string name(reinterpret_cast<const char*>(name_bytes.data()),
                           name_bytes.size());
    const std::string what = FormattedString("entry %s", Quoted(name));
    INLAY_ASSIGN_OR_RETURN(const int64_t calls, number(what, 0));
    INLAY_ASSIGN_OR_RETURN(const int64_t count, number(what, 1));
    INLAY_ASSIGN_OR_RETURN(
        const auto data,
        cursor.Take(static_cast<uint64_t>(count), sizeof(float), what));
    std::vector<float> values = Floats(data);
    INLAY_RETURN_IF_ERROR(CheckSquares(values, what));
    // They are means already, times the calls.
    for (float& value : values) {
      value /= static_cast<float>(calls > 0 ? calls : 1);
    }
    if (!imatrix.emplace(name, std::move(values)).second) {
      return absl::InvalidArgumentError(what + " is there twice");
    }
  }
  return imatrix;
}

absl::StatusOr<Imatrix> ReadImatrix(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() > kMaxImatrixBytes) {
    return InFile(path, absl::ResourceExhaustedError(
                            FormattedString("%d bytes, allowed: at most %d",
                                            file.size(), kMaxImatrixBytes)));
  }
  constexpr std::string_view kMagic = "GGUF";
  std::vector<std::byte> bytes(
      static_cast<size_t>(std::min<uint64_t>(file.size(), kMagic.size())));
  INLAY_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(bytes)));
  absl::StatusOr<Imatrix> imatrix;
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()),
                       bytes.size()) == kMagic) {
    INLAY_ASSIGN_OR_RETURN(const GgufFiles files,
                           OpenGgufFiles(path, WeightAccess::kRead));
    imatrix = GgufImatrix(files).Read();
  } else {
    bytes.resize(static_cast<size_t>(file.size()));
    INLAY_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(bytes)));
    imatrix = ParseOldImatrix(bytes);
  }
  if (!imatrix.ok()) return InFile(path, imatrix.status());
  return imatrix;
}

}  // namespace inlay
