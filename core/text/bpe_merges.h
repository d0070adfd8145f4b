// MergeTable: which pairs of tokens merge, how early, into what. The inner loop
// of BPE is look-ups in it.
#ifndef INLAY_CORE_TEXT_BPE_MERGES_H_
#define INLAY_CORE_TEXT_BPE_MERGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/hash/hash.h"

namespace inlay {

// Open addressing, at most half full, probed linearly: a look-up touches one
// cache line. Hashed by abseil's seeded hash, so that a file cannot choose
// collisions.
class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Merge {
    uint32_t rank = kNone;  // lower merges first; kNone: the pair does not
    int32_t id = -1;        // of the merged token
  };

  // Room for `num_merges` pairs.
  explicit MergeTable(size_t num_merges) {
    size_t slots = 16;
    while (slots < 2 * num_merges) slots *= 2;
    mask_ = slots - 1;
    slots_.resize(slots);
  }

  // A pair that is there already takes the new rank. Ids are not negative.
  void Set(int32_t left, int32_t right, const Merge& merge) {
    const uint64_t key = Key(left, right);
    size_t i = Hash(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
    slots_[i] = {key, merge};
    end_rank_ = std::max(end_rank_, merge.rank + 1);
  }
  // One above the highest rank.
  uint32_t end_rank() const { return end_rank_; }

  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Hash(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 |
           static_cast<uint32_t>(right);
  }
  size_t Hash(uint64_t key) const { return absl::HashOf(key) & mask_; }

  size_t mask_;
  uint32_t end_rank_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BPE_MERGES_H_
