// KvHostSlots: KV blocks with their tokens in a fixed piece of host memory,
// found by key, the least recently used replaced first. Knows nothing of disks
// or threads.
#ifndef INLAY_MEMORY_KV_TIER_HOST_H_
#define INLAY_MEMORY_KV_TIER_HOST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "memory/device/device.h"
#include "memory/kv/lru_list.h"
#include "memory/kv/prefix_index.h"

namespace inlay {

// A slot is free, or filled and findable by key, or pinned. Pinned slots (being
// filled or read, perhaps by several at once) are not replaced, so that bytes
// are copied while no mutex is held. A findable block is fresh until it was
// offered to the tier below; offered ones are replaced first.
// Thread-compatible, but for the bytes of pinned slots.
class KvHostSlots {
 public:
  // Memory that one block takes, bookkeeping included.
  static uint64_t SlotCost(uint64_t block_bytes, int32_t block_size);
  // What the slots' bytes and tokens lie in.
  static uint64_t BufferBytes(int32_t num_slots, uint64_t block_bytes,
                              int32_t block_size);

  // `memory` of BufferBytes(), on the host. May throw std::bad_alloc.
  KvHostSlots(Buffer memory, int32_t num_slots, uint64_t block_bytes,
              int32_t block_size);

  int32_t Find(const KvBlockKey& key) const;  // -1: not here

  struct Taken {
    int32_t slot = -1;  // pinned, not findable; -1: none could be had
    std::optional<KvBlockKey> replaced;
  };
  // A slot for another block: a free one, else that of the block offered
  // longest unused, else, with `even_fresh`, of the fresh one.
  Taken Take(bool even_fresh);
  // A slot from Take() that was filled becomes findable, the most recently
  // used, and is unpinned; key must not be here yet. May throw std::bad_alloc,
  // and has changed nothing then.
  void Publish(int32_t slot, const KvBlockKey& key, bool offered);

  void Pin(int32_t slot);
  // The last one makes the slot the most recently used, or free where it is not
  // findable.
  void Unpin(int32_t slot);
  // Not findable from now on. The slot is free once it is not pinned.
  void Forget(int32_t slot);
  void SetOffered(int32_t slot);

  // The fresh block longest unused and not pinned; -1: none.
  int32_t OldestFresh() const { return fresh_.oldest(); }
  // Slots that Take(false) can give.
  int64_t num_ready() const {
    return static_cast<int64_t>(free_.size()) + offered_.size();
  }
  int32_t num_slots() const { return static_cast<int32_t>(slots_.size()); }
  int64_t num_found() const { return static_cast<int64_t>(index_.size()); }
  int64_t most_found() const { return most_found_; }

  const KvBlockKey& key(int32_t slot) const { return At(slot).key; }
  bool IsFindable(int32_t slot) const { return At(slot).findable; }
  absl::Span<std::byte> bytes(int32_t slot);
  absl::Span<int32_t> tokens(int32_t slot);

 private:
  struct Slot {
    KvBlockKey key;
    int32_t pins = 0;
    bool findable = false;
    bool offered = false;
  };

  Slot& At(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& At(int32_t slot) const {
    return slots_[static_cast<size_t>(slot)];
  }
  LruList& ListOf(const Slot& slot) { return slot.offered ? offered_ : fresh_; }

  Buffer memory_;
  const uint64_t block_bytes_;
  const int32_t block_size_;
  std::vector<Slot> slots_;
  std::vector<LruLink> links_;
  std::vector<int32_t> free_;  // a stack; its capacity is for all slots
  // Findable and not pinned.
  LruList fresh_{&links_};
  LruList offered_{&links_};
  absl::flat_hash_map<KvBlockKey, int32_t> index_;
  int64_t most_found_ = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_TIER_HOST_H_
