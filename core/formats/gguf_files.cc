#include "core/formats/gguf_files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/gguf_metadata.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr uint64_t kFirstRead = uint64_t{1} << 20;
constexpr int64_t kMaxSplits = 4096;
constexpr int64_t kMaxVector = 1 << 16;
constexpr std::string_view kFirstShard = "-00001-of-";
constexpr std::string_view kSuffix = ".gguf";

// The header's size is not known before it is parsed: more is read until it
// fits, four times as much each time.
absl::Status ReadHeader(GgufFile* file) {
  const uint64_t file_bytes = file->reader->size();
  for (uint64_t wanted = kFirstRead;; wanted *= 4) {
    const uint64_t had = file->head.size();
    file->head.resize(static_cast<size_t>(
        std::min({wanted, file_bytes, kMaxGgufHeaderBytes})));
    INLAY_RETURN_IF_ERROR(
        file->reader->ReadAt(had, absl::MakeSpan(file->head).subspan(had)));
    auto header = ParseGgufHeader(file->head, file_bytes);
    if (absl::IsOutOfRange(header.status())) continue;
    if (!header.ok()) return InFile(file->path, header.status());
    file->header = *std::move(header);
    return absl::OkStatus();
  }
}

absl::StatusOr<GgufFile> OpenFile(const std::string& path,
                                  WeightAccess access) {
  GgufFile file;
  file.path = path;
  if (access == WeightAccess::kRead) {
    INLAY_ASSIGN_OR_RETURN(file.reader, FileReader::Open(path));
    INLAY_RETURN_IF_ERROR(ReadHeader(&file));
    return file;
  }
  INLAY_ASSIGN_OR_RETURN(file.map, MappedFile::Open(path));
  const absl::Span<const std::byte> bytes = file.map->bytes();
  auto header = ParseGgufHeader(bytes, bytes.size());
  if (!header.ok()) return InFile(path, header.status());
  file.header = *std::move(header);
  return file;
}

absl::Status WrongSplit(const std::string& path, const std::string& message) {
  return InFile(path, absl::InvalidArgumentError(message));
}

// "NAME-00001-of-00003.gguf" -> "NAME".
absl::StatusOr<std::string> SplitName(const std::string& path, int64_t count) {
  const std::string end =
      FormattedString("%s%05d%s", kFirstShard, count, kSuffix);
  if (path.ends_with(end)) return path.substr(0, path.size() - end.size());
  return WrongSplit(
      path, FormattedString("the first of %d files of a split model, allowed: "
                            "a name that ends in %s (the others are found by "
                            "it)",
                            count, end));
}

absl::Status CheckShard(const GgufFile& file, int64_t index, int64_t count) {
  const auto no = GgufInt(file.header, "split.no", 0, kMaxSplits);
  if (!no.ok()) return InFile(file.path, no.status());
  const auto own = GgufInt(file.header, "split.count", 0, kMaxSplits);
  if (!own.ok()) return InFile(file.path, own.status());
  if (no->value_or(-1) == index && own->value_or(-1) == count) {
    return absl::OkStatus();
  }
  return WrongSplit(
      file.path,
      FormattedString("split.no is %d and split.count %d (-1: not there), "
                      "allowed: %d and %d",
                      no->value_or(-1), own->value_or(-1), index, count));
}

absl::Status CheckTensorCount(const GgufFiles& model) {
  int64_t tensors = 0;
  for (const GgufFile& file : model.files) {
    tensors += static_cast<int64_t>(file.header.tensors.size());
  }
  const auto wanted =
      GgufInt(model.header(), "split.tensors.count", 0, INT32_MAX);
  if (!wanted.ok()) return InFile(model.files[0].path, wanted.status());
  if (!wanted->has_value() || **wanted == tensors) return absl::OkStatus();
  return WrongSplit(
      model.files[0].path,
      FormattedString("split.tensors.count is %d, but the %d files hold %d "
                      "tensors",
                      **wanted, model.files.size(), tensors));
}

}  // namespace

absl::Status GgufFile::Read(uint64_t offset,
                            absl::Span<std::byte> destination) const {
  if (reader.has_value()) return reader->ReadAt(offset, destination);
  if (!destination.empty()) {
    std::memcpy(destination.data(), map->bytes().data() + offset,
                destination.size());
  }
  return absl::OkStatus();
}

const GgufTensor* GgufFiles::FindTensor(std::string_view name) const {
  for (const GgufFile& file : files) {
    const auto& tensors = file.header.tensors;
    const auto found =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const GgufTensor& tensor, std::string_view n) {
                           return tensor.info.name < n;
                         });
    if (found != tensors.end() && found->info.name == name) return &*found;
  }
  return nullptr;
}

absl::StatusOr<std::optional<std::vector<float>>> GgufFiles::ReadVector(
    std::string_view name) const {
  const GgufTensor* tensor = FindTensor(name);
  if (tensor == nullptr) return std::nullopt;
  const WeightInfo& info = tensor->info;
  if (info.dtype != DType::kF32 || info.shape.size() != 1 ||
      info.shape[0] > kMaxVector) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor %s: %d dimensions of %s, allowed: a vector of f32, at most %d",
        Quoted(name), info.shape.size(), DTypeName(info.dtype), kMaxVector));
  }
  const auto owner =
      std::find_if(files.begin(), files.end(), [&](const GgufFile& file) {
        const auto& tensors = file.header.tensors;
        return tensor >= tensors.data() &&
               tensor < tensors.data() + tensors.size();
      });
  std::vector<float> values(static_cast<size_t>(info.shape[0]));
  INLAY_RETURN_IF_ERROR(
      owner->Read(tensor->offset,
                  absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                 values.size() * sizeof(float))));
  return std::optional(std::move(values));
}

absl::StatusOr<GgufFiles> OpenGgufFiles(const std::string& path,
                                        WeightAccess access) {
  GgufFiles model;
  INLAY_ASSIGN_OR_RETURN(GgufFile first, OpenFile(path, access));
  model.files.push_back(std::move(first));
  const auto shards = GgufInt(model.header(), "split.count", 0, kMaxSplits);
  if (!shards.ok()) return InFile(path, shards.status());
  const int64_t count = shards->value_or(1);
  if (count <= 1) return model;
  INLAY_RETURN_IF_ERROR(CheckShard(model.files[0], 0, count));
  INLAY_ASSIGN_OR_RETURN(const std::string name, SplitName(path, count));
  for (int64_t i = 1; i < count; ++i) {
    const std::string shard =
        FormattedString("%s-%05d-of-%05d%s", name, i + 1, count, kSuffix);
    INLAY_ASSIGN_OR_RETURN(GgufFile file, OpenFile(shard, access));
    INLAY_RETURN_IF_ERROR(CheckShard(file, i, count));
    model.files.push_back(std::move(file));
  }
  INLAY_RETURN_IF_ERROR(CheckTensorCount(model));
  return model;
}

}  // namespace inlay
