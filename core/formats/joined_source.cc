#include "core/formats/joined_source.h"

#include <algorithm>
#include <utility>

#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct JoinedEntry {
  WeightInfo info;
  const WeightSource* source;
  const WeightInfo* stored;
};

class JoinedSource final : public WeightSource {
 public:
  explicit JoinedSource(std::vector<JoinedPart> parts)
      : parts_(std::move(parts)) {
    for (const JoinedPart& part : parts_) {
      for (const WeightInfo& stored : part.source->weights()) {
        JoinedEntry& entry = entries_.emplace_back();
        entry.info = stored;
        entry.info.name = part.prefix + stored.name;
        entry.source = part.source.get();
        entry.stored = &stored;
      }
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const JoinedEntry& a, const JoinedEntry& b) {
                return a.info.name < b.info.name;
              });
    infos_.reserve(entries_.size());
    for (const JoinedEntry& entry : entries_) infos_.push_back(entry.info);
  }

  absl::Status CheckNamesDiffer() const {
    for (size_t i = 1; i < infos_.size(); ++i) {
      if (infos_[i - 1].name != infos_[i].name) continue;
      return absl::InvalidArgumentError(
          FormattedString("tensor %s is there twice", Quoted(infos_[i].name)));
    }
    return absl::OkStatus();
  }

  absl::Span<const WeightInfo> weights() const override { return infos_; }

  uint64_t LeavePages(FileRange range) const override {
    uint64_t bytes = 0;
    for (const JoinedPart& part : parts_) {
      bytes += part.source->LeavePages(range.From(bytes));
    }
    return bytes;
  }

  const std::byte* Mapped(const WeightInfo& info) const override {
    const JoinedEntry* entry = Locate(info);
    return entry == nullptr ? nullptr : entry->source->Mapped(*entry->stored);
  }

  absl::Status Read(const WeightInfo& info, uint64_t offset,
                    absl::Span<std::byte> destination) const override {
    const JoinedEntry* entry = Locate(info);
    if (entry == nullptr) {
      return absl::NotFoundError(FormattedString(
          "tensor %s does not come from these files", Quoted(info.name)));
    }
    return entry->source->Read(*entry->stored, offset, destination);
  }

 private:
  const JoinedEntry* Locate(const WeightInfo& info) const {
    const WeightInfo* own = Find(info.name);
    return own == nullptr ? nullptr : &entries_[own - infos_.data()];
  }

  std::vector<JoinedPart> parts_;
  std::vector<JoinedEntry> entries_;  // sorted by name
  std::vector<WeightInfo> infos_;     // of entries_
};

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightSource>> MakeJoinedSource(
    std::vector<JoinedPart> parts) {
  auto source = std::make_shared<JoinedSource>(std::move(parts));
  INLAY_RETURN_IF_ERROR(source->CheckNamesDiffer());
  return source;
}

}  // namespace inlay
