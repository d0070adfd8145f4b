// KvBlockPool: which KV blocks are in use and by how many holders.
// Owns ids and counts only; knows no bytes, layers, devices or requests. The
// storage behind the ids belongs to the engine. Source: paged KV as in
// "Efficient Memory Management for LLM Serving with PagedAttention" (Kwon et
// al., 2023).
#ifndef INLAY_MEMORY_KV_BLOCK_POOL_H_
#define INLAY_MEMORY_KV_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "memory/status.h"

namespace inlay {

// Who keeps cached blocks and gives them back when the pool needs them (the
// prefix index). None of these may fail, throw or call Allocate().
class KvBlockReclaimer {
 public:
  virtual ~KvBlockReclaimer() = default;
  // Removes `count` evictable blocks from the cache, the least valuable first;
  // there are that many.
  virtual void Reclaim(int64_t count) = 0;
  // A cached block lost its last other holder: it is evictable from now on ...
  virtual void OnEvictable(int32_t id) = 0;
  // ... and not any more: it got one.
  virtual void OnHeld(int32_t id) = 0;
};

// Blocks of the ids added and not removed, each with a reference count; a block
// at count 0 is free. A cached block has one reference that belongs to the
// cache; with no other it is evictable, which is as good as free: Allocate()
// has it reclaimed. Thread-compatible: one thread (the engine's step thread)
// owns the pool and everything that refers to it. Must outlive its tables and
// reservations.
class KvBlockPool {
 public:
  // With blocks 0 .. num_blocks-1, >= 0; the caller has checked it against its
  // budget. Bookkeeping is 9 bytes a block.
  explicit KvBlockPool(int32_t num_blocks);
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  // Ids [first, first + count), which the pool does not have, become free
  // blocks of it. May throw std::bad_alloc, and has changed nothing then.
  void AddBlocks(int32_t first, int32_t count);
  // The pool has the ids that `leaves` names no more. What is in use there
  // moves to free blocks that stay, of which there are enough: `moved` is told
  // of each, as after Move(). Does not allocate. O(blocks).
  void RemoveBlocks(absl::FunctionRef<bool(int32_t id)> leaves,
                    absl::FunctionRef<void(int32_t from, int32_t to)> moved);

  // `count` blocks with one reference each, or none at all. RESOURCE_EXHAUSTED:
  // fewer are available; INVALID_ARGUMENT: negative count. The block freed last
  // is handed out first: its memory is the likeliest to be in a CPU cache.
  absl::StatusOr<std::vector<int32_t>> Allocate(int64_t count);

  // `id` must be in use: a new holder can only come from an old one.
  void Ref(int32_t id) {
    INLAY_DCHECK(IsUsed(id));
    if (IsEvictable(id)) BecomeHeld(id);
    ++refs_[static_cast<size_t>(id)];
  }
  // Drops one reference; the last one frees the block.
  void Unref(int32_t id);

  // The cache takes a reference of its own to a block in use.
  void AddToCache(int32_t id);
  // ... and drops it again.
  void RemoveFromCache(int32_t id);
  // `reclaimer` (not owned) serves Allocate() from now on; null while nothing
  // is cached.
  void SetReclaimer(KvBlockReclaimer* reclaimer) { reclaimer_ = reclaimer; }

  // Everything of `from`, in use, is now of `to`, free: references and cache
  // mark; `from` is free. The holders are changed by the caller.
  void Move(int32_t from, int32_t to);

  // 0 for a free block and for ids that the pool does not have.
  int32_t RefCount(int32_t id) const {
    INLAY_DCHECK(id >= 0 && id < end_id());
    return refs_[static_cast<size_t>(id)];
  }
  bool IsUsed(int32_t id) const {
    return id >= 0 && id < end_id() && RefCount(id) > 0;
  }
  bool IsCached(int32_t id) const {
    return (state_[static_cast<size_t>(id)] & kCached) != 0;
  }
  bool IsEvictable(int32_t id) const {
    return RefCount(id) == 1 && IsCached(id);
  }

  // Ids are below it.
  int32_t end_id() const { return static_cast<int32_t>(refs_.size()); }
  int32_t num_total() const { return num_total_; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_used() const { return num_total() - num_free(); }
  int32_t num_evictable() const { return num_evictable_; }
  // What Allocate() can give.
  int32_t num_available() const { return num_free() + num_evictable(); }
  // The highest num_used() so far.
  int32_t peak_used() const { return peak_used_; }

  // Tests only: every Allocate() of at least one block asks `fails`, and
  // reports RESOURCE_EXHAUSTED when it says true.
  void SetAllocationFaultForTest(std::function<bool()> fails) {
    fault_ = std::move(fails);
  }

 private:
  enum State : uint8_t { kAbsent = 0, kPresent = 1, kCached = 2 };

  void BecomeHeld(int32_t id);

  std::vector<int32_t> refs_;
  std::vector<uint8_t> state_;  // bits of State
  std::vector<int32_t> free_;   // a stack; its capacity is end_id() from the
                                // start, so Unref() never allocates
  int32_t num_total_ = 0;
  int32_t num_evictable_ = 0;
  int32_t peak_used_ = 0;
  KvBlockReclaimer* reclaimer_ = nullptr;
  std::function<bool()> fault_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_BLOCK_POOL_H_
