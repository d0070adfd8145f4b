#include "core/quantize/overlay_weights.h"

#include <cstring>
#include <string_view>

namespace inlay {
namespace {

constexpr std::string_view kPermutation = ".input_permutation";

}  // namespace

OverlayWeights::OverlayWeights(std::shared_ptr<const WeightSource> base,
                               std::map<std::string, Matrix> matrices)
    : base_(std::move(base)), matrices_(std::move(matrices)) {
  for (const WeightInfo& info : base_->weights()) {
    if (info.name.ends_with(kPermutation)) {
      const std::string layer =
          info.name.substr(0, info.name.size() - kPermutation.size());
      if (matrices_.contains(layer + std::string(kWeightSuffix))) continue;
    }
    WeightInfo& copy = infos_.emplace_back(info);
    const auto found = matrices_.find(info.name);
    if (found == matrices_.end()) continue;
    copy.dtype = DType::kF32;
    copy.shape = found->second.shape;
    copy.bytes = found->second.values.size() * sizeof(float);
    copy.rows_are_outputs = true;
  }
}

const std::byte* OverlayWeights::Mapped(const WeightInfo& info) const {
  const auto found = matrices_.find(info.name);
  if (found == matrices_.end()) return base_->Mapped(*base_->Find(info.name));
  return reinterpret_cast<const std::byte*>(found->second.values.data());
}

absl::Status OverlayWeights::Read(const WeightInfo& info, uint64_t offset,
                                  absl::Span<std::byte> destination) const {
  const auto found = matrices_.find(info.name);
  if (found == matrices_.end()) {
    return base_->Read(*base_->Find(info.name), offset, destination);
  }
  std::memcpy(destination.data(), Mapped(info) + offset, destination.size());
  return absl::OkStatus();
}

}  // namespace inlay
