// BlockLedger: the KV blocks of a step as they will be once the plan so far is
// carried out. Owns no blocks and changes none: it counts what tables would
// give back and what items would take.
#ifndef INLAY_SCHED_BLOCK_LEDGER_H_
#define INLAY_SCHED_BLOCK_LEDGER_H_

#include <cstdint>
#include <vector>

#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "sched/request.h"

namespace inlay {

class BlockLedger {
 public:
  // `pool` is not owned. block_size: tokens a block, >= 1.
  BlockLedger(const KvBlockPool* pool, int32_t block_size);

  // Starts from the pool as it is. O(blocks released since the last start).
  void Begin();

  int64_t num_free() const { return num_free_; }
  // Blocks that num_tokens (>= 0) more tokens of the request take, the copy of
  // a shared last block included.
  int64_t Need(const SchedRequest& request, int64_t num_tokens) const;
  bool Fits(const SchedRequest& request, int64_t num_tokens) const {
    return Need(request, num_tokens) <= num_free_;
  }
  // The most tokens, up to max_tokens, that fit.
  int64_t MaxFitting(const SchedRequest& request, int64_t max_tokens) const;

  void Claim(int64_t blocks) { num_free_ -= blocks; }
  void Unclaim(int64_t blocks) { num_free_ += blocks; }

  // The table is cleared before the step: a block comes free when the last of
  // its holders is released. O(its blocks).
  void Release(const KvBlockTable& table);
  void UndoRelease(const KvBlockTable& table);
  // The same for a request, which may have no table: then each of its blocks
  // counts as its own.
  void Release(const SchedRequest& request);
  void UndoRelease(const SchedRequest& request);

 private:
  bool Copies(const SchedRequest& request) const;

  const KvBlockPool* pool_;
  int32_t block_size_;
  int64_t num_free_ = 0;
  std::vector<int32_t>
      released_;  // by block: references given back in this plan
  std::vector<int32_t> touched_;  // blocks with an entry in released_ to reset
};

}  // namespace inlay

#endif  // INLAY_SCHED_BLOCK_LEDGER_H_
