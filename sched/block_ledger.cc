// Counting blocks of a plan that is not carried out yet.
#include "sched/block_ledger.h"

#include <algorithm>

namespace inlay {

BlockLedger::BlockLedger(const KvBlockPool* pool, int32_t block_size)
    : pool_(pool), block_size_(block_size) {
  Begin();
}

void BlockLedger::Begin() {
  EndTrials();
  claimed_ = 0;
  if (released_.size() < static_cast<size_t>(pool_->end_id())) {
    released_.resize(static_cast<size_t>(pool_->end_id()), 0);
  }
}

bool BlockLedger::Copies(const SchedRequest& request) const {
  if (request.num_computed % block_size_ == 0) return false;
  const int32_t last =
      request.table
          ->blocks()[static_cast<size_t>(request.num_computed / block_size_)];
  return pool_->RefCount(last) - released_[static_cast<size_t>(last)] > 1;
}

int64_t BlockLedger::Need(const SchedRequest& request,
                          int64_t num_tokens) const {
  if (num_tokens == 0) return 0;
  const int64_t held = KvBlocksFor(request.num_computed, block_size_);
  return KvBlocksFor(request.num_computed + num_tokens, block_size_) - held +
         (Copies(request) ? 1 : 0);
}

int64_t BlockLedger::MaxFitting(const SchedRequest& request,
                                int64_t max_tokens) const {
  const int64_t blocks = num_available() - (Copies(request) ? 1 : 0);
  if (blocks < 0) return 0;
  const int64_t held = KvBlocksFor(request.num_computed, block_size_);
  return std::min(max_tokens,
                  (held + blocks) * block_size_ - request.num_computed);
}

void BlockLedger::Try(const KvBlockTable& table) {
  for (int32_t id : table.blocks()) {
    if (id == KvBlockTable::kNoBlock) continue;
    int32_t& released = released_[static_cast<size_t>(id)];
    if (released == 0) touched_.push_back(id);
    if (++released == Holders(id)) ++tried_;
  }
}

void BlockLedger::UndoTry(const KvBlockTable& table) {
  for (int32_t id : table.blocks()) {
    if (id == KvBlockTable::kNoBlock) continue;
    int32_t& released = released_[static_cast<size_t>(id)];
    if (released-- == Holders(id)) --tried_;
  }
}

void BlockLedger::EndTrials() {
  for (int32_t id : touched_) released_[static_cast<size_t>(id)] = 0;
  touched_.clear();
  tried_ = 0;
}

}  // namespace inlay
