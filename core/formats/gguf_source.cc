#include "core/formats/gguf_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/factor_source.h"
#include "core/formats/gguf_factors.h"
#include "core/formats/gguf_t5.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Not weights: rotary factors, which config.json holds (gguf_config.h),
// frequencies that old files store although they follow from the base, and how
// to round activations, which are not rounded.
constexpr std::string_view kNoWeights[] = {"rope_freqs.weight",
                                           "rope_factors_long.weight",
                                           "rope_factors_short.weight"};

struct GgufLocation {
  size_t file = 0;
  uint64_t offset = 0;  // in the file
  GgufLayout layout = GgufLayout::kSame;
  int64_t head_rows = 0;  // for rows that take turns
};

bool IsNoWeight(std::string_view name) {
  return std::find(std::begin(kNoWeights), std::end(kNoWeights), name) !=
             std::end(kNoWeights) ||
         name.ends_with(".attn_rot_embd.weight") ||
         name.ends_with(".input_scale");
}

absl::Status UnknownTensor(std::string_view name, const GgufArch& arch) {
  return absl::UnimplementedError(FormattedString(
      "tensor %s is none of the architecture \"%s\"", Quoted(name), arch.name));
}

// Whether values are not those of the file.
bool IsComputed(GgufLayout layout) {
  return layout == GgufLayout::kPlusOne || layout == GgufLayout::kLogOfMinus;
}

// Whether "blk.N..." has an N of at least `layers`.
bool IsOfLaterLayer(std::string_view name, int64_t layers) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return false;
  int64_t layer = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kBlock.size(), end, layer);
  return parsed.ec == std::errc() && layer >= layers;
}

// Rows of a matrix, elements of a bias.
int64_t Rows(const WeightInfo& info) { return info.shape.front(); }

class GgufSource final : public WeightSource {
 public:
  using Tensor = std::pair<WeightInfo, GgufLocation>;

  // `tensors`: sorted by name.
  GgufSource(std::vector<GgufFile> files, std::vector<Tensor> tensors)
      : files_(std::move(files)) {
    infos_.reserve(tensors.size());
    locations_.reserve(tensors.size());
    for (auto& [info, location] : tensors) {
      infos_.push_back(std::move(info));
      locations_.push_back(location);
    }
    // The keys and infos have served.
    for (GgufFile& file : files_) {
      file.header = {};
      file.head = {};
    }
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    uint64_t bytes = 0;
    for (const GgufFile& file : files_) {
      if (!file.map.has_value()) continue;
      const FileRange own = range.From(bytes);
      file.map->LeavePages(own.begin, own.end);
      bytes += file.map->bytes().size();
    }
    return bytes;
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const GgufLocation* location = Locate(info);
    if (location == nullptr) return nullptr;
    const bool as_it_lies = location->layout != GgufLayout::kQueryRows &&
                            location->layout != GgufLayout::kKeyRows &&
                            !IsComputed(location->layout);
    const std::optional<MappedFile>& map = files_[location->file].map;
    if (!as_it_lies || !map.has_value()) return nullptr;
    return map->bytes().data() + location->offset;
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const GgufLocation* location = Locate(info);
    if (location == nullptr) {
      return absl::NotFoundError(FormattedString(
          "tensor %s does not come from these files", Quoted(info.name)));
    }
    const WeightInfo& own = infos_[location - locations_.data()];
    if (offset > own.bytes || destination.size() > own.bytes - offset) {
      return absl::OutOfRangeError(FormattedString(
          "tensor %s: cannot read %d bytes at byte %d, it has %d bytes",
          Quoted(own.name), destination.size(), offset, own.bytes));
    }
    switch (location->layout) {
      case GgufLayout::kQueryRows:
      case GgufLayout::kKeyRows:
        return ReadRows(own, *location, offset, destination);
      case GgufLayout::kPlusOne:
      case GgufLayout::kLogOfMinus:
        return ReadComputed(own, *location, offset, destination);
      case GgufLayout::kSame:
      case GgufLayout::kTransposed:
      case GgufLayout::kVector:
      case GgufLayout::kBareName:
      case GgufLayout::kWhole:
      case GgufLayout::kTaps:
      case GgufLayout::kHeads:
      case GgufLayout::kFlat:
        break;
    }
    return files_[location->file].Read(location->offset + offset, destination);
  }

 private:
  const GgufLocation* Locate(const WeightInfo& info) const {
    const WeightInfo* own = Find(info.name);
    return own == nullptr ? nullptr : &locations_[own - infos_.data()];
  }

  // Row j * half + i of a head lies at row 2 * i + j.
  absl::Status ReadRows(const WeightInfo& info, const GgufLocation& location,
                        uint64_t offset,
                        absl::Span<std::byte> destination) const {
    const uint64_t row_bytes = info.bytes / static_cast<uint64_t>(Rows(info));
    const auto head = static_cast<uint64_t>(location.head_rows);
    const uint64_t half = head / 2;
    while (!destination.empty()) {
      const uint64_t row = offset / row_bytes;
      const uint64_t within = offset % row_bytes;
      const uint64_t in_head = row % head;
      const uint64_t stored =
          row - in_head + 2 * (in_head % half) + in_head / half;
      const auto bytes =
          std::min<uint64_t>(destination.size(), row_bytes - within);
      INLAY_RETURN_IF_ERROR(files_[location.file].Read(
          location.offset + stored * row_bytes + within,
          destination.subspan(0, bytes)));
      destination.remove_prefix(bytes);
      offset += bytes;
    }
    return absl::OkStatus();
  }

  absl::Status ReadComputed(const WeightInfo& info,
                            const GgufLocation& location, uint64_t offset,
                            absl::Span<std::byte> destination) const {
    if (destination.empty()) return absl::OkStatus();
    const uint64_t first = offset / sizeof(float);
    const uint64_t end =
        (offset + destination.size() + sizeof(float) - 1) / sizeof(float);
    INLAY_DCHECK(end * sizeof(float) <= info.bytes);
    std::vector<float> values(end - first);
    const auto bytes =
        absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                       values.size() * sizeof(float));
    INLAY_RETURN_IF_ERROR(files_[location.file].Read(
        location.offset + first * sizeof(float), bytes));
    for (float& value : values) {
      value = location.layout == GgufLayout::kPlusOne ? value - 1.0f
                                                      : std::log(-value);
    }
    std::memcpy(destination.data(), bytes.data() + offset % sizeof(float),
                destination.size());
    return absl::OkStatus();
  }

  std::vector<GgufFile> files_;
  std::vector<WeightInfo> infos_;
  std::vector<GgufLocation> locations_;  // of infos_
};

absl::Status WrongTensor(std::string_view name, const std::string& message) {
  return absl::InvalidArgumentError(
      FormattedString("tensor %s: %s", Quoted(name), message));
}

absl::Status SetLayout(const WeightInfo& info, const GgufHeads& heads,
                       GgufLocation* location) {
  if (IsComputed(location->layout) && info.dtype != DType::kF32) {
    return WrongTensor(info.name,
                       FormattedString("a vector of type %s, allowed: f32",
                                       DTypeName(info.dtype)));
  }
  const bool is_query = location->layout == GgufLayout::kQueryRows;
  if (!is_query && location->layout != GgufLayout::kKeyRows) {
    return absl::OkStatus();
  }
  const int64_t count = heads.head_dim > 0 ? Rows(info) / heads.head_dim
                        : is_query         ? heads.query
                                           : heads.key;
  // A bias has its rows' elements in one block each.
  const bool divides =
      count > 0 && Rows(info) % (2 * count) == 0 &&
      (info.shape.size() > 1 || GetFormatInfo(info.dtype).block_elements == 1);
  if (!divides) {
    return WrongTensor(
        info.name,
        FormattedString("%d rows, allowed: a multiple of twice the %d "
                        "heads",
                        Rows(info), count));
  }
  location->head_rows = Rows(info) / count;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> MakeGgufSource(
    GgufFiles files, const GgufArch& arch, const GgufHeads& heads,
    int64_t layers) {
  std::vector<GgufSource::Tensor> tensors;
  std::vector<WeightFactors> factors;
  for (size_t i = 0; i < files.files.size(); ++i) {
    for (const GgufTensor& tensor : files.files[i].header.tensors) {
      if (IsNoWeight(tensor.info.name) ||
          IsGgufT5Decoder(arch.name, tensor.info.name) ||
          IsOfLaterLayer(tensor.info.name, layers)) {
        continue;
      }
      if (IsGgufFactor(arch, tensor.info.name)) {
        auto of_weight = ReadGgufFactor(files, arch, tensor.info.name);
        if (!of_weight.ok()) {
          return InFile(files.files[i].path, of_weight.status());
        }
        factors.push_back(*std::move(of_weight));
        continue;
      }
      const auto name = PublishedTensorName(arch, tensor.info.name);
      if (!name.has_value()) {
        return InFile(files.files[i].path,
                      UnknownTensor(tensor.info.name, arch));
      }
      WeightInfo info = tensor.info;
      GgufLocation location = {i, tensor.offset, name->layout, 0};
      const absl::Status layout = SetLayout(info, heads, &location);
      if (!layout.ok()) return InFile(files.files[i].path, layout);
      info.name = name->name;
      if (name->layout == GgufLayout::kVector && info.shape.size() == 1) {
        info.shape.insert(info.shape.begin(), 1);
      }
      // Kimi's are [1, channels, 1, taps].
      if (name->layout == GgufLayout::kTaps && info.shape.size() == 4 &&
          info.shape.front() == 1) {
        info.shape.erase(info.shape.begin());
      }
      if (name->layout == GgufLayout::kTaps && info.shape.size() == 2) {
        info.shape.insert(info.shape.begin() + 1, 1);
      }
      if (name->layout == GgufLayout::kFlat && info.shape.size() == 2) {
        info.shape = {info.shape[0] * info.shape[1]};
      }
      if (name->layout == GgufLayout::kHeads && info.shape.size() == 3) {
        const int64_t heads_rows = info.shape[0] * info.shape[1];
        info.shape = {heads_rows, info.shape[2]};
      }
      info.rows_are_outputs = name->layout == GgufLayout::kTransposed;
      tensors.emplace_back(std::move(info), location);
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.first.name < b.first.name;
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].first.name != tensors[i].first.name) continue;
    return InFile(files.files[0].path,
                  WrongTensor(tensors[i].first.name, "several files have it"));
  }
  const std::string path = files.files[0].path;
  auto source = PresentFactors(
      std::make_shared<GgufSource>(std::move(files.files), std::move(tensors)),
      factors);
  if (!source.ok()) return InFile(path, source.status());
  return source;
}

}  // namespace inlay
