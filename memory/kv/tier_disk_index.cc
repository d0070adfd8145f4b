#include "memory/kv/tier_disk_index.h"

namespace inlay {

void KvDiskIndex::Touch(const KvRecordId& id) {
  const auto it = index_.find(id);
  if (it == index_.end()) return;
  order_.Remove(it->second);
  order_.PushNewest(it->second);
}

void KvDiskIndex::Add(const KvRecordId& id, uint64_t cost) {
  if (free_.empty()) {
    // In an order in which each may fail and nothing has changed.
    const size_t count = records_.size() + 1;
    if (free_.capacity() < count) free_.reserve(2 * count);
    links_.resize(count);
    records_.emplace_back();
    free_.push_back(static_cast<int32_t>(count) - 1);
  }
  const int32_t record = free_.back();
  index_.emplace(id, record);
  free_.pop_back();
  records_[static_cast<size_t>(record)] = {id, cost};
  order_.PushNewest(record);
}

std::optional<uint64_t> KvDiskIndex::Remove(const KvRecordId& id) {
  const auto it = index_.find(id);
  if (it == index_.end()) return std::nullopt;
  const int32_t record = it->second;
  index_.erase(it);
  order_.Remove(record);
  free_.push_back(record);
  return records_[static_cast<size_t>(record)].cost;
}

std::optional<KvRecordId> KvDiskIndex::Oldest() const {
  if (order_.oldest() < 0) return std::nullopt;
  return records_[static_cast<size_t>(order_.oldest())].id;
}

}  // namespace inlay
