#include "core/formats/sliced_source.h"

#include <algorithm>
#include <utility>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

class SlicedSource final : public WeightSource {
 public:
  SlicedSource(std::shared_ptr<const WeightSource> stored,
               std::vector<SlicedTensor> entries)
      : stored_(std::move(stored)), entries_(std::move(entries)) {
    std::sort(entries_.begin(), entries_.end(),
              [](const SlicedTensor& a, const SlicedTensor& b) {
                return a.info.name < b.info.name;
              });
    infos_.reserve(entries_.size());
    for (const SlicedTensor& entry : entries_) infos_.push_back(entry.info);
  }

  absl::Status CheckNamesDiffer() const {
    for (size_t i = 1; i < infos_.size(); ++i) {
      if (infos_[i - 1].name != infos_[i].name) continue;
      return absl::InvalidArgumentError(
          FormattedString("tensor %s is there alone and within another",
                          Quoted(infos_[i].name)));
    }
    return absl::OkStatus();
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    return stored_->LeavePages(range);
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const SlicedTensor* entry = Locate(info);
    if (entry == nullptr) return nullptr;
    return entry->is_slice ? MappedSlice(*stored_, entry->slice, entry->info)
                           : stored_->Mapped(entry->info);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const SlicedTensor* entry = Locate(info);
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
    return entry->is_slice ? ReadSlice(*stored_, entry->slice, entry->info,
                                       offset, destination)
                           : stored_->Read(entry->info, offset, destination);
  }

 private:
  const SlicedTensor* Locate(const WeightInfo& info) const {
    const WeightInfo* own = Find(info.name);
    return own == nullptr ? nullptr : &entries_[own - infos_.data()];
  }

  std::shared_ptr<const WeightSource> stored_;
  std::vector<SlicedTensor> entries_;  // sorted by name
  std::vector<WeightInfo> infos_;      // of entries_
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> MakeSlicedSource(
    std::shared_ptr<const WeightSource> stored,
    std::vector<SlicedTensor> tensors) {
  auto source =
      std::make_shared<SlicedSource>(std::move(stored), std::move(tensors));
  INLAY_RETURN_IF_ERROR(source->CheckNamesDiffer());
  return source;
}

}  // namespace inlay
