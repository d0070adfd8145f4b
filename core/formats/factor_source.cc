#include "core/formats/factor_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A block of nvfp4_f32 is the factor and one of nvfp4 (nvfp4_f32.h).
uint64_t StoredBytes() {
  return static_cast<uint64_t>(GetFormatInfo(DType::kNVFP4).block_bytes);
}
uint64_t BlockBytes() { return sizeof(float) + StoredBytes(); }
// Read at once.
constexpr uint64_t kPieceBlocks = 1024;

class FactorSource final : public WeightSource {
 public:
  explicit FactorSource(std::shared_ptr<const WeightSource> stored)
      : stored_(std::move(stored)),
        infos_(stored_->weights().begin(), stored_->weights().end()),
        factors_(infos_.size()) {}

  absl::Status Add(const WeightFactors& factors) {
    const WeightInfo* found = Find(factors.name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(FormattedString(
          "factors of tensor %s, which is not there", Quoted(factors.name)));
    }
    const size_t at = static_cast<size_t>(found - infos_.data());
    WeightInfo& info = infos_[at];
    if (!factors_[at].empty()) {
      return absl::InvalidArgumentError(
          FormattedString("tensor %s has factors twice", Quoted(info.name)));
    }
    if (info.dtype != DType::kNVFP4) {
      return absl::UnimplementedError(FormattedString(
          "tensor %s is stored as %s with a factor beside it, allowed: nvfp4",
          Quoted(info.name), DTypeName(info.dtype)));
    }
    const uint64_t blocks = info.bytes / StoredBytes();
    if (factors.values.empty() || blocks % factors.values.size() != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "tensor %s has %d factors, allowed: those that divide its %d blocks",
          Quoted(info.name), factors.values.size(), blocks));
    }
    info.dtype = DType::kNVFP4_F32;
    info.bytes = blocks * BlockBytes();
    factors_[at] = factors.values;
    return absl::OkStatus();
  }

  // Of what is left in nvfp4.
  absl::Status AddOnes() {
    for (size_t i = 0; i < infos_.size(); ++i) {
      if (infos_[i].dtype != DType::kNVFP4) continue;
      INLAY_RETURN_IF_ERROR(Add({infos_[i].name, {1.0f}}));
    }
    return absl::OkStatus();
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const WeightInfo* own = Find(info.name);
    if (own == nullptr || !FactorsOf(*own).empty()) return nullptr;
    return stored_->Mapped(info);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const WeightInfo* own = Find(info.name);
    if (own == nullptr || FactorsOf(*own).empty()) {
      return stored_->Read(info, offset, destination);
    }
    if (offset > own->bytes || destination.size() > own->bytes - offset) {
      return absl::OutOfRangeError(FormattedString(
          "tensor %s: cannot read %d bytes at byte %d, it has %d bytes",
          Quoted(own->name), destination.size(), offset, own->bytes));
    }
    const std::vector<float>& factors = FactorsOf(*own);
    const uint64_t stored_bytes = StoredBytes();
    const uint64_t block_bytes = BlockBytes();
    const uint64_t part = own->bytes / block_bytes / factors.size();
    std::vector<std::byte> piece;
    std::vector<std::byte> block(block_bytes);
    while (!destination.empty()) {
      const uint64_t first = offset / block_bytes;
      const uint64_t end =
          (offset + destination.size() + block_bytes - 1) / block_bytes;
      const uint64_t count = std::min(end - first, kPieceBlocks);
      piece.resize(count * stored_bytes);
      INLAY_RETURN_IF_ERROR(stored_->Read(
          StoredInfo(*own), first * stored_bytes, absl::MakeSpan(piece)));
      for (uint64_t i = 0; i < count; ++i) {
        std::memcpy(block.data(), &factors[(first + i) / part], sizeof(float));
        std::memcpy(block.data() + sizeof(float),
                    piece.data() + i * stored_bytes, stored_bytes);
        const uint64_t within = offset % block_bytes;
        const auto bytes =
            std::min<uint64_t>(destination.size(), block_bytes - within);
        std::memcpy(destination.data(), block.data() + within, bytes);
        destination.remove_prefix(bytes);
        offset += bytes;
      }
    }
    return absl::OkStatus();
  }

 private:
  // `own`: of infos_.
  const std::vector<float>& FactorsOf(const WeightInfo& own) const {
    return factors_[static_cast<size_t>(&own - infos_.data())];
  }
  // They have the same order there.
  const WeightInfo& StoredInfo(const WeightInfo& own) const {
    return stored_->weights()[static_cast<size_t>(&own - infos_.data())];
  }

  std::shared_ptr<const WeightSource> stored_;
  std::vector<WeightInfo> infos_;
  std::vector<std::vector<float>> factors_;  // of infos_; empty: none
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> PresentFactors(
    std::shared_ptr<const WeightSource> stored,
    const std::vector<WeightFactors>& factors) {
  if (factors.empty()) return stored;
  auto source = std::make_shared<FactorSource>(std::move(stored));
  for (const WeightFactors& of_weight : factors) {
    INLAY_RETURN_IF_ERROR(source->Add(of_weight));
  }
  INLAY_RETURN_IF_ERROR(source->AddOnes());
  return source;
}

}  // namespace inlay
