// Counting blocks of a plan that is not carried out yet.
#include "sched/block_ledger.h"

#include <algorithm>

namespace inlay {

BlockLedger::BlockLedger(const KvBlockPool* pool,
                         absl::Span<const KvGroup> groups)
    : pool_(pool), groups_(groups.begin(), groups.end()) {
  Begin();
}

void BlockLedger::Begin() {
  EndTrials();
  claimed_ = 0;
  if (released_.size() < static_cast<size_t>(pool_->end_id())) {
    released_.resize(static_cast<size_t>(pool_->end_id()), 0);
  }
}

bool BlockLedger::IsShared(const SchedRequest& request, size_t group,
                           int64_t index) const {
  const int32_t id =
      request.tables->group(group).blocks()[static_cast<size_t>(index)];
  return pool_->RefCount(id) - released_[static_cast<size_t>(id)] > 1;
}

int64_t BlockLedger::Need(const SchedRequest& request,
                          int64_t num_tokens) const {
  if (num_tokens == 0) return request.num_coming;
  int64_t need = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t size = groups_[g].block_size;
    const int64_t full = request.num_computed / size;
    const int64_t in_last = request.num_computed - full * size;
    int64_t beyond = num_tokens;  // the last block
    if (in_last > 0) {
      beyond -= size - in_last;
      if (groups_[g].is_state || IsShared(request, g, full)) ++need;
    }
    if (beyond > 0) need += KvBlocksFor(beyond, size);
  }
  return need;
}

int64_t BlockLedger::MaxFitting(const SchedRequest& request,
                                int64_t max_tokens) const {
  if (Fits(request, max_tokens)) return max_tokens;
  int64_t fits = 0;  // and max_tokens does not
  while (max_tokens - fits > 1) {
    const int64_t middle = fits + (max_tokens - fits) / 2;
    (Fits(request, middle) ? fits : max_tokens) = middle;
  }
  return fits;
}

void BlockLedger::Try(const KvTables& tables) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t id : tables.group(g).blocks()) {
      if (id == KvBlockTable::kNoBlock) continue;
      int32_t& released = released_[static_cast<size_t>(id)];
      if (released == 0) touched_.push_back(id);
      if (++released == Holders(id)) ++tried_;
    }
  }
}

void BlockLedger::UndoTry(const KvTables& tables) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int32_t id : tables.group(g).blocks()) {
      if (id == KvBlockTable::kNoBlock) continue;
      int32_t& released = released_[static_cast<size_t>(id)];
      if (released-- == Holders(id)) --tried_;
    }
  }
}

void BlockLedger::EndTrials() {
  for (int32_t id : touched_) released_[static_cast<size_t>(id)] = 0;
  touched_.clear();
  tried_ = 0;
}

}  // namespace inlay
