// TopKeys: the best top_k of any number of scored keys, which are not kept.
// Memory does not grow with their number.
#ifndef INLAY_KERNELS_INDEXER_TOP_KEYS_H_
#define INLAY_KERNELS_INDEXER_TOP_KEYS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>

#include "kernels/indexer/indexer.h"
#include "kernels/indexer/score_order.h"

namespace inlay {

// 80 KB: on a thread's stack, as tiles are.
class TopKeys {
 public:
  explicit TopKeys(int top_k) : top_k_(top_k) {}

  void Clear() {
    count_ = 0;
    least_ = 0;
  }

  void Add(float score, int32_t position) {
    // Of equal scores the lower position is more.
    AddEntry(uint64_t{ScoreOrder(std::bit_cast<uint32_t>(score))} << 32 |
             ~static_cast<uint32_t>(position));
  }

  // The best so far in any order, top_k at most, to `to`; returns how many.
  int TakeEntries(uint64_t* to) {
    Prune();
    std::copy_n(entries_, count_, to);
    return count_;
  }
  // What others have taken.
  void AddEntries(const uint64_t* entries, int64_t count) {
    for (int64_t i = 0; i < count; ++i) AddEntry(entries[i]);
  }

  // The keys' slots to `selection`, ascending by position. At least top_k keys
  // were added.
  void Take(const int32_t* blocks, int block_size, int32_t* selection) {
    Prune();
    for (int i = 0; i < top_k_; ++i) {
      selection[i] = static_cast<int32_t>(~static_cast<uint32_t>(entries_[i]));
    }
    std::sort(selection, selection + top_k_);
    for (int i = 0; i < top_k_; ++i) {
      const int32_t position = selection[i];
      selection[i] =
          blocks[position / block_size] * block_size + position % block_size;
    }
  }

 private:
  // Entries beside the best before those are looked for again.
  static constexpr int kRoom = 2048;

  void AddEntry(uint64_t entry) {
    if (entry < least_) return;
    entries_[count_++] = entry;
    if (count_ == top_k_ + kRoom) Prune();
  }

  // Leaves the best, in any order.
  void Prune() {
    if (count_ <= top_k_) return;
    uint64_t* const last = entries_ + top_k_ - 1;
    std::nth_element(entries_, last, entries_ + count_, std::greater<>());
    count_ = top_k_;
    least_ = *last;
  }

  int top_k_;
  int count_ = 0;
  uint64_t least_ = 0;  // what is less is not among the best
  uint64_t entries_[kMaxIndexTopK + kRoom];
};

// All keys of a query that sees no more than are selected.
inline void SelectAll(const int32_t* blocks, int block_size, int64_t count,
                      int32_t* selection) {
  for (int64_t t = 0; t < count; ++t) {
    selection[t] = blocks[t / block_size] * block_size +
                   static_cast<int32_t>(t % block_size);
  }
}

// The place of the key that is to come, IndexerDesc::adds_partial, of a query
// that sees `seen` tokens.
inline void SelectPartial(const int32_t* blocks, int block_size, int64_t seen,
                          int key_tokens, int32_t* slot) {
  if (seen % key_tokens == 0) return;
  const int64_t key = seen / key_tokens;
  *slot = blocks[key / block_size] * block_size +
          static_cast<int32_t>(key % block_size);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_TOP_KEYS_H_
