// KvDiskIndex: which records lie in a folder of KV, in the order of their last
// use, and what they take. Knows no files.
#ifndef INLAY_MEMORY_KV_TIER_DISK_INDEX_H_
#define INLAY_MEMORY_KV_TIER_DISK_INDEX_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "memory/kv/lru_list.h"
#include "memory/kv/tier_files.h"

namespace inlay {

// Thread-compatible. All O(1); only Add() allocates.
class KvDiskIndex {
 public:
  bool Has(const KvRecordId& id) const { return index_.contains(id); }
  // Makes a record that is here the most recently used.
  void Touch(const KvRecordId& id);
  // A record that is not here, as the most recently used. May throw
  // std::bad_alloc, and has changed nothing then.
  void Add(const KvRecordId& id, uint64_t cost);
  // What it took; nothing if it was not here.
  std::optional<uint64_t> Remove(const KvRecordId& id);
  // The record longest unused.
  std::optional<KvRecordId> Oldest() const;
  int64_t size() const { return static_cast<int64_t>(index_.size()); }

 private:
  struct Record {
    KvRecordId id;
    uint64_t cost = 0;
  };

  std::vector<Record> records_;  // some unused, in free_
  std::vector<LruLink> links_;   // of records_
  std::vector<int32_t> free_;    // its capacity is that of all records
  LruList order_{&links_};
  std::unordered_map<KvRecordId, int32_t, absl::Hash<KvRecordId>> index_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_TIER_DISK_INDEX_H_
