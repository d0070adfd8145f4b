// BlockLedger: the KV blocks of a step as they will be once the plan so far is
// carried out. Owns no blocks and changes none: it counts what items take, and
// what tables would give back.
#ifndef INLAY_SCHED_BLOCK_LEDGER_H_
#define INLAY_SCHED_BLOCK_LEDGER_H_

#include <cstdint>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/kv_group.h"
#include "memory/kv/tables.h"
#include "sched/request.h"

namespace inlay {

class BlockLedger {
 public:
  // `pool` is not owned. groups: those of every request's tables.
  BlockLedger(const KvBlockPool* pool, absl::Span<const KvGroup> groups);

  // Nothing claimed. May throw std::bad_alloc after the pool grew.
  void Begin();

  // What the pool can give, less what is claimed, plus what is let go on trial.
  int64_t num_available() const {
    return pool_->num_available() - claimed_ + tried_;
  }
  int64_t num_total() const { return pool_->num_total(); }
  // Blocks that num_tokens (>= 0) more tokens of the request take, the copy of
  // a shared last block (or the one in the place of a state's) included; of one
  // with blocks to come, only 0 tokens and those blocks.
  int64_t Need(const SchedRequest& request, int64_t num_tokens) const;
  bool Fits(const SchedRequest& request, int64_t num_tokens) const {
    return Need(request, num_tokens) <= num_available();
  }
  // The most tokens, up to max_tokens, that fit.
  int64_t MaxFitting(const SchedRequest& request, int64_t max_tokens) const;

  void Claim(int64_t blocks) { claimed_ += blocks; }
  void Unclaim(int64_t blocks) { claimed_ -= blocks; }

  // What if the tables were cleared: a block becomes available when the last of
  // its holders is. O(its blocks).
  void Try(const KvTables& tables);
  void UndoTry(const KvTables& tables);
  // Ends all trials; the caller has carried out those it meant.
  void EndTrials();

 private:
  // Whether a block of the request's has another holder.
  bool IsShared(const SchedRequest& request, size_t group, int64_t index) const;
  // References to the block that are not the cache's.
  int32_t Holders(int32_t id) const {
    return pool_->RefCount(id) - (pool_->IsCached(id) ? 1 : 0);
  }

  const KvBlockPool* pool_;
  KvGroups groups_;
  int64_t claimed_ = 0;
  int64_t tried_ = 0;
  std::vector<int32_t> released_;  // by block: references let go on trial
  std::vector<int32_t> touched_;   // blocks with an entry in released_ to reset
};

}  // namespace inlay

#endif  // INLAY_SCHED_BLOCK_LEDGER_H_
