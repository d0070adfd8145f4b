#include "core/quantize/overlay_weights.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "kernels/quant/quant.h"
#include "memory/device/thread_pool.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

constexpr std::string_view kPermutation = ".input_permutation";

void Decode(const OverlayWeights::Matrix& matrix, ThreadPool& pool,
            std::vector<float>* values) {
  const BlockCodec& codec = *FindBlockCodec(matrix.format);
  const int64_t width = matrix.shape[1];
  const int64_t blocks = width / GetFormatInfo(matrix.format).block_elements;
  const size_t row_bytes = RowBytes(matrix.format, static_cast<size_t>(width));
  values->resize(static_cast<size_t>(matrix.shape[0] * width));
  float* to = values->data();
  pool.ParallelFor(matrix.shape[0], 16, [&](int64_t begin, int64_t end) {
    codec.decode(matrix.blocks.data() + static_cast<size_t>(begin) * row_bytes,
                 (end - begin) * blocks, to + begin * width);
  });
}

}  // namespace

uint64_t OverlayWeights::Matrix::float_bytes() const {
  return RowBytes(DType::kF32, static_cast<size_t>(shape[0] * shape[1]));
}

OverlayWeights::OverlayWeights(std::shared_ptr<const WeightSource> base,
                               std::map<std::string, Matrix> matrices,
                               uint64_t lent_bytes)
    : base_(std::move(base)), matrices_(std::move(matrices)) {
  uint64_t all = 0, largest = 0;
  for (const auto& [name, matrix] : matrices_) {
    if (matrix.blocks.empty()) continue;
    all += matrix.float_bytes();
    largest = std::max(largest, matrix.float_bytes());
  }
  // Where not all are kept, one has to be there besides.
  room_ = all <= lent_bytes ? all : lent_bytes - std::min(lent_bytes, largest);
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
    copy.bytes = found->second.float_bytes();
    copy.rows_are_outputs = true;
  }
}

const std::byte* OverlayWeights::Mapped(const WeightInfo& info) const {
  const auto found = matrices_.find(info.name);
  if (found == matrices_.end()) return base_->Mapped(*base_->Find(info.name));
  return found->second.values.empty()
             ? nullptr
             : reinterpret_cast<const std::byte*>(found->second.values.data());
}

absl::Status OverlayWeights::Read(const WeightInfo& info, uint64_t offset,
                                  absl::Span<std::byte> destination) const {
  const auto found = matrices_.find(info.name);
  if (found == matrices_.end()) {
    return base_->Read(*base_->Find(info.name), offset, destination);
  }
  const std::byte* values = Mapped(info);
  if (values == nullptr) {
    return absl::InvalidArgumentError(FormattedString(
        "tensor \"%s\" was read, allowed: to have it lent", info.name));
  }
  std::memcpy(destination.data(), values + offset, destination.size());
  return absl::OkStatus();
}

bool OverlayWeights::Lends(const WeightInfo& info) const {
  const auto found = matrices_.find(info.name);
  return found != matrices_.end() && !found->second.blocks.empty();
}

absl::StatusOr<const std::byte*> OverlayWeights::Lend(const WeightInfo& info,
                                                      Stream& stream) {
  const auto kept = kept_.find(info.name);
  if (kept != kept_.end()) {
    return reinterpret_cast<const std::byte*>(kept->second.data());
  }
  const Matrix& matrix = matrices_.find(info.name)->second;
  std::vector<float>* values = &scratch_;
  if (matrix.float_bytes() <= room_) {
    room_ -= matrix.float_bytes();
    values = &kept_[info.name];
  }
  Decode(matrix, *stream.thread_pool(), values);
  return reinterpret_cast<const std::byte*>(values->data());
}

}  // namespace inlay
