// KvBlockTable: the KV blocks of one token sequence in one group of layers.
// Owns references into a KvBlockPool; knows no bytes, models or requests.
// Growing is KvReservation's (reservation.h).
#ifndef INLAY_MEMORY_KV_BLOCK_TABLE_H_
#define INLAY_MEMORY_KV_BLOCK_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/kv_group.h"

namespace inlay {

// A copy of one block's content, in every layer, that must be done before
// anything is written to `dst`.
struct KvBlockCopy {
  int32_t src;
  int32_t dst;
};

// The token at position p lives in blocks()[p / block_size], slot p %
// block_size. Holds exactly the blocks that its tokens occupy, less those
// dropped from its front (kNoBlock stands for them). Blocks may be shared with
// other tables and the prefix index; a shared block is never written (copy on
// write). Thread-compatible, together with its pool.
class KvBlockTable {
 public:
  static constexpr int32_t kNoBlock = -1;

  // `pool` is not owned and must outlive the table. block_size: tokens a block,
  // >= 1. is_state: as KvGroup.
  KvBlockTable(KvBlockPool* pool, int32_t block_size, bool is_state = false);
  ~KvBlockTable() { Clear(); }
  KvBlockTable(KvBlockTable&& other) noexcept;
  KvBlockTable& operator=(KvBlockTable&& other) noexcept;

  // A table of the same tokens that shares every block. Costs a reference a
  // block, no block.
  KvBlockTable Fork() const;
  // Keeps the first min(num_tokens, num_tokens()) tokens and drops the blocks
  // wholly past them. num_tokens >= 0. A table cut into its dropped blocks may
  // only be cleared: what the next token reads is gone.
  void Truncate(int64_t num_tokens);
  void Clear() { Truncate(0); }
  // Fills an empty table with blocks in use that hold num_tokens tokens: it
  // becomes one more holder of each. blocks: KvBlocksFor(num_tokens) ids or
  // kNoBlock, which stands for those not needed, and for those still to come:
  // until they are Put(), the table may only be cut or cleared.
  void Share(absl::Span<const int32_t> blocks, int64_t num_tokens);
  // blocks()[index], which was to come, is `id`: takes over a reference.
  void Put(size_t index, int32_t id);
  // blocks()[index] becomes `id`, in use, whose content is the same.
  void Replace(size_t index, int32_t id);
  // Drops the blocks wholly before `position`: no later token reads them
  // (sliding windows).
  void DropBefore(int64_t position);
  // blocks()[index] was moved to `id` in the pool (KvBlockPool::Move).
  void SetMoved(size_t index, int32_t id) { blocks_[index] = id; }

  // Blocks that a reservation of `extra_tokens` (>= 0) more would take from the
  // pool, a copy-on-write one included.
  int64_t BlocksNeeded(int64_t extra_tokens) const;
  // The last block has room but is shared (or holds a state, or is still to
  // come): the next token must go to a copy of it (or another).
  bool AppendCopies() const;

  int64_t num_tokens() const { return num_tokens_; }
  int32_t block_size() const { return block_size_; }
  bool is_state() const { return is_state_; }
  absl::Span<const int32_t> blocks() const { return blocks_; }
  const KvBlockPool& pool() const { return *pool_; }

 private:
  friend class KvReservation;

  KvBlockPool* pool_;
  int32_t block_size_;
  bool is_state_;
  int64_t num_tokens_ = 0;  // tokens whose KV is valid
  size_t num_dropped_ = 0;  // leading blocks that are kNoBlock
  // KvBlocksFor(num_tokens_, block_size_) ids, one reference each.
  std::vector<int32_t> blocks_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_BLOCK_TABLE_H_
