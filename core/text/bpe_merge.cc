// Two ways to the same result: a scan for short pieces, a heap for long ones.
#include "core/text/bpe_merge.h"

#include <algorithm>
#include <functional>

namespace inlay {
namespace {

// Up to here scanning all ranks for the minimum beats keeping a heap.
constexpr size_t kMaxScanned = 48;
constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

void BpeMerger::Merge(const MergeTable& table) {
  if (symbols_.size() < 2) return;
  if (symbols_.size() <= kMaxScanned) {
    MergeShort(table);
  } else {
    MergeLong(table);
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

void BpeMerger::Queue(const MergeTable& table, uint32_t pos) {
  const uint32_t next = next_[pos];
  merges_[pos] = next == kEnd ? MergeTable::Merge{}
                              : table.Find(symbols_[pos], symbols_[next]);
  if (merges_[pos].rank == MergeTable::kNone) return;
  heap_.push_back(uint64_t{merges_[pos].rank} << 32 | pos);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeMerger::MergeLong(const MergeTable& table) {
  const auto n = static_cast<uint32_t>(symbols_.size());
  merges_.assign(n, {});
  next_.resize(n);
  previous_.resize(n);
  heap_.clear();
  for (uint32_t i = 0; i < n; ++i) {
    next_[i] = i + 1 < n ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
  }
  for (uint32_t i = 0; i + 1 < n; ++i) {
    merges_[i] = table.Find(symbols_[i], symbols_[i + 1]);
    if (merges_[i].rank != MergeTable::kNone) {
      heap_.push_back(uint64_t{merges_[i].rank} << 32 | i);
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t top = heap_.back();
    heap_.pop_back();
    const auto pos = static_cast<uint32_t>(top);
    // An entry whose pair has changed since is left in the heap; its rank no
    // longer agrees, or the position is gone (rank kNone).
    if (merges_[pos].rank != top >> 32) continue;
    const uint32_t gone = next_[pos];
    symbols_[pos] = merges_[pos].id;
    merges_[gone].rank = MergeTable::kNone;
    next_[pos] = next_[gone];
    if (next_[pos] != kEnd) previous_[next_[pos]] = pos;
    Queue(table, pos);
    if (previous_[pos] != kEnd) Queue(table, previous_[pos]);
  }
  size_t count = 0;
  for (uint32_t i = 0; i != kEnd; i = next_[i]) symbols_[count++] = symbols_[i];
  symbols_.resize(count);
}

}  // namespace inlay
