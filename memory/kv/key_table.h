// KeyTable: what each KvBlockKey names. A hash table with a fixed capacity:
// absl's and the standard library's either lose their content or allocate a
// node when memory runs out. Linear probing, backward-shift deletion (Knuth,
// vol. 3, 6.4, algorithm R).
#ifndef INLAY_MEMORY_KV_KEY_TABLE_H_
#define INLAY_MEMORY_KV_KEY_TABLE_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "memory/kv/block_key.h"
#include "memory/status.h"

namespace inlay {

// Only Reserve() allocates. Thread-compatible.
class KeyTable {
 public:
  static constexpr int32_t kNone = -1;

  // A block, and the newest of those that follow it. With neither it is not in
  // the table.
  struct Entry {
    KvBlockKey key;
    int32_t id = kNone;
    int32_t first_child = kNone;

    bool empty() const { return id == kNone && first_child == kNone; }
  };

  // Room for `count` entries. May throw std::bad_alloc; the content stays.
  void Reserve(size_t count) {
    // At most two thirds full: a search looks at 5 slots, mostly at 1 or 2.
    const size_t size = std::bit_ceil(count + count / 2 + 1);
    if (size <= slots_.size()) return;
    std::vector<Entry> old(size);
    old.swap(slots_);
    for (const Entry& entry : old) {
      if (!entry.empty()) slots_[Slot(entry.key)] = entry;
    }
  }

  // Null: not there.
  const Entry* Find(const KvBlockKey& key) const {
    if (slots_.empty()) return nullptr;
    const Entry& entry = slots_[Slot(key)];
    return entry.empty() ? nullptr : &entry;
  }
  Entry* Find(const KvBlockKey& key) {
    return const_cast<Entry*>(std::as_const(*this).Find(key));
  }
  // There is room. An entry that was not there is empty, and must not be when
  // the next is added. Valid until an entry is erased.
  Entry& FindOrAdd(const KvBlockKey& key) {
    Entry& entry = slots_[Slot(key)];
    entry.key = key;
    return entry;
  }
  // Takes out `entry`, which has become empty.
  void Erase(Entry* entry) {
    INLAY_DCHECK(entry->empty());
    auto hole = static_cast<size_t>(entry - slots_.data());
    for (size_t next = Next(hole); !slots_[next].empty(); next = Next(next)) {
      // One whose search would have come by the hole moves into it.
      const size_t home = Home(slots_[next].key);
      if (((next - home) & mask()) < ((next - hole) & mask())) continue;
      slots_[hole] = std::exchange(slots_[next], Entry());
      hole = next;
    }
  }

 private:
  size_t mask() const { return slots_.size() - 1; }
  size_t Next(size_t slot) const { return (slot + 1) & mask(); }
  // Hashed once more, with absl's secret of this process: who chooses the
  // tokens chooses keys, and shall not choose slots.
  size_t Home(const KvBlockKey& key) const {
    return absl::Hash<KvBlockKey>()(key) & mask();
  }
  // Where `key` is, or would be.
  size_t Slot(const KvBlockKey& key) const {
    size_t slot = Home(key);
    while (!slots_[slot].empty() && slots_[slot].key != key) slot = Next(slot);
    return slot;
  }

  std::vector<Entry> slots_;  // a power of two
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_KEY_TABLE_H_
