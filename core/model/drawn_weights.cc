#include "core/model/drawn_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/model/random_weights.h"
#include "kernels/cpu_float.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Drawn {
  WeightInfo info;
  std::optional<float> constant;  // of what is no matrix
};

class DrawnWeights final : public WeightSource {
 public:
  DrawnWeights(uint64_t seed, std::vector<Drawn> tensors, ThreadPool& pool)
      : seed_(seed), pool_(pool) {
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return a.info.name < b.info.name;
    });
    for (Drawn& tensor : tensors) {
      infos_.push_back(std::move(tensor.info));
      constants_.push_back(tensor.constant);
    }
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }
  const std::byte* Mapped(const WeightInfo&) const override { return nullptr; }
  uint64_t LeavePages(FileRange) const override { return 0; }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const WeightInfo* own = Find(info.name);
    if (own == nullptr || offset > own->bytes ||
        destination.size() > own->bytes - offset) {
      return absl::InvalidArgumentError(
          FormattedString("tensor \"%s\": %d bytes from %d on are none of its",
                          info.name, destination.size(), offset));
    }
    if (destination.empty()) return absl::OkStatus();
    const uint64_t size = RowBytes(own->dtype, 1);
    const uint64_t count = own->bytes / size;
    // Values come in pairs.
    const uint64_t first = offset / size / 2 * 2;
    uint64_t end = (offset + destination.size() + size - 1) / size;
    if (end < count && (end - first) % 2 != 0) ++end;
    std::vector<std::byte> values((end - first) * size);
    const auto& constant = constants_[static_cast<size_t>(own - infos_.data())];
    if (constant.has_value()) {
      const float value = *constant;
      for (uint64_t i = 0; i < end - first; ++i) {
        std::memcpy(values.data() + i * size, &value, sizeof(value));
      }
    } else {
      DrawWeights(seed_, own->name, own->dtype,
                  static_cast<int64_t>(end - first), values.data(), pool_,
                  static_cast<int64_t>(first));
    }
    std::memcpy(destination.data(), values.data() + (offset - first * size),
                destination.size());
    return absl::OkStatus();
  }

 private:
  uint64_t seed_;
  std::vector<WeightInfo> infos_;                // sorted by name
  std::vector<std::optional<float>> constants_;  // of infos_
  ThreadPool& pool_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> MakeDrawnWeights(
    const RandomWeights& draw, const std::vector<PlannedWeight>& planned,
    ThreadPool& pool) {
  std::vector<Drawn> tensors;
  for (const PlannedWeight& weight : planned) {
    const DType dtype = draw.DTypeOf(weight.name);
    if (!IsPlainFloat(dtype)) {
      return absl::UnimplementedError(FormattedString(
          "random weights of dtype %s cannot be read, allowed: f32, f16, bf16",
          DTypeName(dtype)));
    }
    Drawn tensor;
    tensor.info.name = weight.name;
    tensor.info.shape = weight.shape;
    tensor.info.dtype = weight.vector.has_value() ? DType::kF32 : dtype;
    tensor.info.rows_are_outputs = true;
    tensor.info.bytes = RowBytes(tensor.info.dtype, 1);
    for (const int64_t size : weight.shape) {
      tensor.info.bytes *= static_cast<uint64_t>(size);
    }
    if (weight.vector.has_value()) {
      tensor.constant = weight.vector == VectorKind::kScale ? 1.0f : 0.0f;
    }
    tensors.push_back(std::move(tensor));
  }
  return std::make_shared<DrawnWeights>(draw.seed, std::move(tensors), pool);
}

}  // namespace inlay
