// Three ways to the same result: a scan for short pieces, a heap for long ones,
// a list for each rank for those of millions.
#include "core/text/bpe_merge.h"

#include <algorithm>

namespace inlay {
namespace {

// Up to here scanning all ranks for the minimum beats keeping a heap.
constexpr size_t kMaxScanned = 48;
// Up to here a heap stays in the first-level cache.
constexpr size_t kMaxHeaped = 4096;
constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

void BpeMerger::Merge(const MergeTable& table) {
  if (symbols_.size() < 2) return;
  if (symbols_.size() <= kMaxScanned) {
    MergeShort(table);
  } else if (symbols_.size() <= kMaxHeaped) {
    heap_.Clear();
    MergeBy(table, &heap_);
  } else {
    ranks_.Reset(table.end_rank());
    MergeBy(table, &ranks_);
  }
}

void BpeMerger::MergeShort(const MergeTable& table) {
  size_t n = symbols_.size();
  int32_t* ids = symbols_.data();
  MergeTable::Merge pairs[kMaxScanned];
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = table.Find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNone) break;
    ids[best] = pairs[best].id;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    if (best + 2 < n) {
      std::copy(pairs + best + 2, pairs + n - 1, pairs + best + 1);
    }
    --n;
    if (best > 0) pairs[best - 1] = table.Find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = table.Find(ids[best], ids[best + 1]);
  }
  symbols_.resize(n);
}

template <typename Queue>
void BpeMerger::MergeBy(const MergeTable& table, Queue* queue) {
  const auto n = static_cast<uint32_t>(symbols_.size());
  merges_.assign(n, {});
  next_.resize(n);
  previous_.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    next_[i] = i + 1 < n ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
  }
  // Looks the pair at `pos` up, anew, and queues it if it merges.
  const auto consider = [&](uint32_t pos) {
    const uint32_t next = next_[pos];
    merges_[pos] = next == kEnd ? MergeTable::Merge{}
                                : table.Find(symbols_[pos], symbols_[next]);
    if (merges_[pos].rank != MergeTable::kNone)
      queue->Push({merges_[pos].rank, pos});
  };
  for (uint32_t i = 0; i + 1 < n; ++i) consider(i);
  for (RankedPosition top; queue->Pop(&top);) {
    const uint32_t pos = top.position;
    // An entry whose pair has changed since is left in the queue; its rank no
    // longer agrees, or the position is gone (rank kNone).
    if (merges_[pos].rank != top.rank) continue;
    const uint32_t gone = next_[pos];
    symbols_[pos] = merges_[pos].id;
    merges_[gone].rank = MergeTable::kNone;
    next_[pos] = next_[gone];
    if (next_[pos] != kEnd) previous_[next_[pos]] = pos;
    if (previous_[pos] != kEnd) consider(previous_[pos]);
    consider(pos);
  }
  size_t count = 0;
  for (uint32_t i = 0; i != kEnd; i = next_[i]) symbols_[count++] = symbols_[i];
  symbols_.resize(count);
}

}  // namespace inlay
