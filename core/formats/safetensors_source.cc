#include "core/formats/safetensors_source.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/safetensors.h"
#include "core/formats/safetensors_index.h"
#include "memory/formatted_string.h"
#include "memory/mapped_file.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr const char* kPickledNames[] = {"pytorch_model.bin",
                                         "pytorch_model.bin.index.json"};
constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;

// One open file: mapped or read, as the access asks.
struct WeightFile {
  std::optional<MappedFile> map;
  std::optional<FileReader> reader;
};

struct Location {
  size_t file = 0;
  uint64_t offset = 0;  // in the file
};

struct OpenedFile {
  WeightFile file;
  std::vector<SafetensorsTensor> tensors;  // sorted by name
};

absl::StatusOr<OpenedFile> OpenMapped(const std::string& path,
                                      const TensorFilter& wanted) {
  INLAY_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  auto tensors =
      ParseSafetensorsHeader(map.bytes(), map.bytes().size(), wanted);
  if (!tensors.ok()) return InFile(path, tensors.status());
  return OpenedFile{{std::move(map), std::nullopt}, *std::move(tensors)};
}

absl::StatusOr<OpenedFile> OpenRead(const std::string& path,
                                    const TensorFilter& wanted) {
  INLAY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(path));
  std::vector<std::byte> header(static_cast<size_t>(
      std::min<uint64_t>(kSafetensorsPrefixBytes, reader.size())));
  INLAY_RETURN_IF_ERROR(reader.ReadAt(0, absl::MakeSpan(header)));
  const auto data_start = SafetensorsDataStart(header, reader.size());
  if (!data_start.ok()) return InFile(path, data_start.status());
  header.resize(static_cast<size_t>(*data_start));
  INLAY_RETURN_IF_ERROR(reader.ReadAt(0, absl::MakeSpan(header)));
  auto tensors = ParseSafetensorsHeader(header, reader.size(), wanted);
  if (!tensors.ok()) return InFile(path, tensors.status());
  return OpenedFile{{std::nullopt, std::move(reader)}, *std::move(tensors)};
}

absl::StatusOr<OpenedFile> Open(const std::string& path, WeightAccess access,
                                const TensorFilter& wanted) {
  return access == WeightAccess::kMap ? OpenMapped(path, wanted)
                                      : OpenRead(path, wanted);
}

class SafetensorsSource final : public WeightSource {
 public:
  void AddFile(WeightFile file) { files_.push_back(std::move(file)); }
  // A tensor of the file added last.
  void AddTensor(SafetensorsTensor tensor) {
    tensors_.push_back({std::move(tensor.info),
                        {.file = files_.size() - 1, .offset = tensor.offset}});
  }
  void Finish() {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const auto& a, const auto& b) {
                return a.first.name < b.first.name;
              });
    for (auto& [info, location] : tensors_) {
      infos_.push_back(std::move(info));
      locations_.push_back(location);
    }
    tensors_ = {};
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    uint64_t bytes = 0;
    for (const WeightFile& file : files_) {
      if (!file.map.has_value()) continue;
      const FileRange own = range.From(bytes);
      file.map->LeavePages(own.begin, own.end);
      bytes += file.map->bytes().size();
    }
    return bytes;
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const Location* location = Locate(info);
    if (location == nullptr) return nullptr;
    const std::optional<MappedFile>& map = files_[location->file].map;
    if (!map.has_value()) return nullptr;
    // Old files pad nothing: a tensor may begin at any byte.
    const std::byte* data = map->bytes().data() + location->offset;
    const auto element =
        static_cast<uintptr_t>(GetFormatInfo(info.dtype).block_bytes);
    return reinterpret_cast<uintptr_t>(data) % element == 0 ? data : nullptr;
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const Location* location = Locate(info);
    if (location == nullptr) {
      return absl::NotFoundError(FormattedString(
          "tensor %s does not come from these files", Quoted(info.name)));
    }
    const uint64_t bytes = infos_[location - locations_.data()].bytes;
    if (offset > bytes || destination.size() > bytes - offset) {
      return absl::OutOfRangeError(FormattedString(
          "tensor %s: cannot read %d bytes at byte %d, it has %d bytes",
          Quoted(info.name), destination.size(), offset, bytes));
    }
    const WeightFile& file = files_[location->file];
    if (file.reader.has_value()) {
      return file.reader->ReadAt(location->offset + offset, destination);
    }
    if (!destination.empty()) {
      std::memcpy(destination.data(),
                  file.map->bytes().data() + location->offset + offset,
                  destination.size());
    }
    return absl::OkStatus();
  }

 private:
  // By name, so that a copy of an info serves as well as the info itself.
  const Location* Locate(const WeightInfo& info) const {
    const WeightInfo* own = Find(info.name);
    return own == nullptr ? nullptr : &locations_[own - infos_.data()];
  }

  std::vector<WeightFile> files_;
  std::vector<std::pair<WeightInfo, Location>> tensors_;  // until Finish()
  std::vector<WeightInfo> infos_;
  std::vector<Location> locations_;  // of infos_
};

absl::StatusOr<std::shared_ptr<const WeightSource>> OpenSingle(
    const std::string& path, WeightAccess access, const TensorFilter& wanted) {
  INLAY_ASSIGN_OR_RETURN(OpenedFile opened, Open(path, access, wanted));
  auto source = std::make_shared<SafetensorsSource>();
  source->AddFile(std::move(opened.file));
  for (SafetensorsTensor& tensor : opened.tensors) {
    source->AddTensor(std::move(tensor));
  }
  source->Finish();
  return source;
}

absl::StatusOr<std::shared_ptr<const WeightSource>> OpenShards(
    const std::string& directory, const std::string& index, WeightAccess access,
    const TensorFilter& wanted) {
  INLAY_ASSIGN_OR_RETURN(const std::string text,
                         ReadWholeFile(index, kMaxIndexBytes));
  INLAY_ASSIGN_OR_RETURN(SafetensorsShards shards,
                         ParseSafetensorsIndex(text, index));
  if (wanted != nullptr) {
    for (auto& [file, names] : shards) {
      std::erase_if(names,
                    [&](const std::string& name) { return !wanted(name); });
    }
  }
  auto source = std::make_shared<SafetensorsSource>();
  for (const auto& [file, names] : shards) {
    if (names.empty()) continue;
    const std::string path = FormattedString("%s/%s", directory, file);
    INLAY_ASSIGN_OR_RETURN(OpenedFile opened, Open(path, access, wanted));
    source->AddFile(std::move(opened.file));
    // Both lists are sorted: one walk finds each name.
    auto tensor = opened.tensors.begin();
    for (const std::string& name : names) {
      while (tensor != opened.tensors.end() && tensor->info.name < name) {
        ++tensor;
      }
      if (tensor == opened.tensors.end() || tensor->info.name != name) {
        return absl::InvalidArgumentError(
            FormattedString("%s: tensor %s should be in %s but is not there",
                            index, Quoted(name), file));
      }
      source->AddTensor(std::move(*tensor++));
    }
  }
  source->Finish();
  return source;
}

absl::Status NoWeights(const std::string& directory) {
  for (const char* name : kPickledNames) {
    if (IsRegularFile(FormattedString("%s/%s", directory, name))) {
      return absl::UnimplementedError(
          FormattedString("%s holds its weights as %s, allowed: safetensors "
                          "(%s or %s); convert "
                          "the model, or fetch a revision that has them",
                          directory, name, kSingleName, kIndexName));
    }
  }
  return absl::NotFoundError(
      FormattedString("%s holds no weights: neither %s nor %s is there",
                      directory, kSingleName, kIndexName));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> OpenSafetensors(
    const std::string& directory, WeightAccess access,
    const TensorFilter& wanted) {
  const std::string single = FormattedString("%s/%s", directory, kSingleName);
  if (IsRegularFile(single)) return OpenSingle(single, access, wanted);
  const std::string index = FormattedString("%s/%s", directory, kIndexName);
  if (IsRegularFile(index)) {
    return OpenShards(directory, index, access, wanted);
  }
  return NoWeights(directory);
}

}  // namespace inlay
