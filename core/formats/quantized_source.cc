#include "core/formats/quantized_source.h"

#include <algorithm>
#include <utility>

#include "core/formats/describe.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Method {
  std::string_view name;
  FindQuantizedLayers* find;
};

// Experts alone are in that format, and PresentExperts() has presented them.
absl::StatusOr<QuantizedLayers> FindMxfp4Layers(
    const Json& config, const std::shared_ptr<const WeightSource>&,
    std::string_view) {
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  return QuantizedLayers();
}

constexpr Method kMethods[] = {
    {"auto-round", FindAutoRoundLayers},
    {"awq", FindAwqLayers},
    {"bitnet", FindBitnetLayers},
    {"bitsandbytes", FindBitsAndBytesLayers},
    {"compressed-tensors", FindCompressedTensorsLayers},
    {"fbgemm_fp8", FindFbgemmFp8Layers},
    {"fp8", FindFp8Layers},
    {"gptq", FindGptqLayers},
    {"intel/auto-round", FindAutoRoundLayers},
    {"modelopt", FindModelOptLayers},
    {"mxfp4", FindMxfp4Layers},
    {"quark", FindQuarkLayers},
    {"torchao", FindTorchAoLayers},
};

// Files of bitsandbytes' first years do not name it.
absl::StatusOr<std::string> MethodOf(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(std::string name,
                         JsonString(config, "quant_method", ""));
  if (!name.empty()) return name;
  for (const char* key : {"load_in_4bit", "load_in_8bit"}) {
    INLAY_ASSIGN_OR_RETURN(const bool loads, JsonBool(config, key, false));
    if (loads) return "bitsandbytes";
  }
  return name;
}

// A presented tensor: stored as it is, or a layer's weight or permutation.
struct Presented {
  WeightInfo info;
  const QuantizedLayer* layer = nullptr;
  bool is_permutation = false;
};

class QuantizedSource final : public WeightSource {
 public:
  QuantizedSource(std::shared_ptr<const WeightSource> stored,
                  QuantizedLayers layers)
      : stored_(std::move(stored)), layers_(std::move(layers.layers)) {
    std::vector<std::string>& gone = layers.consumed;
    std::sort(gone.begin(), gone.end());
    for (const WeightInfo& info : stored_->weights()) {
      if (std::binary_search(gone.begin(), gone.end(), info.name)) continue;
      entries_.push_back({info});
    }
    for (const auto& layer : layers_) {
      entries_.push_back({layer->weight(), layer.get(), false});
      if (layer->permutation() == nullptr) continue;
      entries_.push_back({*layer->permutation(), layer.get(), true});
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const Presented& a, const Presented& b) {
                return a.info.name < b.info.name;
              });
    for (const Presented& entry : entries_) infos_.push_back(entry.info);
  }

  // Two tensors of one name, say "L.weight" beside "L.qweight".
  absl::Status CheckNamesDiffer() const {
    for (size_t i = 1; i < infos_.size(); ++i) {
      if (infos_[i - 1].name != infos_[i].name) continue;
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s is there, and quantised ones that stand for it as well",
          Quoted(infos_[i].name)));
    }
    return absl::OkStatus();
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const Presented* entry = Locate(info);
    if (entry == nullptr || entry->layer != nullptr) return nullptr;
    return stored_->Mapped(entry->info);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const Presented* entry = Locate(info);
    if (entry == nullptr) {
      return absl::NotFoundError(FormattedString(
          "tensor %s does not come from these files", Quoted(info.name)));
    }
    const uint64_t bytes = entry->info.bytes;
    if (offset > bytes || destination.size() > bytes - offset) {
      return absl::OutOfRangeError(FormattedString(
          "tensor %s: cannot read %d bytes at byte %d, it has %d bytes",
          Quoted(info.name), destination.size(), offset, bytes));
    }
    if (entry->layer == nullptr) {
      return stored_->Read(entry->info, offset, destination);
    }
    if (!entry->is_permutation) {
      return entry->layer->ReadWeight(offset, destination);
    }
    entry->layer->ReadPermutation(offset, destination);
    return absl::OkStatus();
  }

 private:
  const Presented* Locate(const WeightInfo& info) const {
    const WeightInfo* own = Find(info.name);
    return own == nullptr ? nullptr : &entries_[own - infos_.data()];
  }

  std::shared_ptr<const WeightSource> stored_;
  std::vector<std::unique_ptr<const QuantizedLayer>> layers_;
  std::vector<Presented> entries_;  // sorted by name
  std::vector<WeightInfo> infos_;   // of entries_
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> OpenQuantized(
    const Json& quantization_config, std::shared_ptr<const WeightSource> stored,
    std::string_view place) {
  if (!quantization_config.is_object()) {
    return absl::InvalidArgumentError(
        FormattedString("%s is %s; it must be an object", place,
                        quantization_config.type_name()));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string name, MethodOf(quantization_config));
  for (const Method& method : kMethods) {
    if (method.name != name) continue;
    INLAY_ASSIGN_OR_RETURN(QuantizedLayers layers,
                           method.find(quantization_config, stored, place));
    auto source =
        std::make_shared<QuantizedSource>(std::move(stored), std::move(layers));
    INLAY_RETURN_IF_ERROR(source->CheckNamesDiffer());
    return source;
  }
  return UnsupportedSetting(
      "quant_method", name,
      "auto-round, awq, bitnet, bitsandbytes, compressed-tensors, fbgemm_fp8, "
      "fp8, gptq, modelopt, mxfp4, quark, torchao",
      place);
}

}  // namespace inlay
