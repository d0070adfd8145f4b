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

#include "absl/status/statusor.h"
#include "memory/status.h"

namespace inlay {

// Blocks 0 .. num_blocks-1, each with a reference count; a block at count 0 is
// free. Thread-compatible: one thread (the engine's step thread) owns the pool
// and everything that refers to it. Must outlive its tables and reservations.
class KvBlockPool {
 public:
  // All bookkeeping is allocated here (8 bytes a block). num_blocks >= 0; the
  // caller has checked it against its budget.
  explicit KvBlockPool(int32_t num_blocks);
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  // `count` blocks with one reference each, or none at all. RESOURCE_EXHAUSTED:
  // fewer are free; INVALID_ARGUMENT: negative count. The block freed last is
  // handed out first: its memory is the likeliest to be in a cache.
  absl::StatusOr<std::vector<int32_t>> Allocate(int64_t count);

  // `id` must be in use: a new holder can only come from an old one.
  void Ref(int32_t id) {
    INLAY_DCHECK(IsUsed(id));
    ++refs_[static_cast<size_t>(id)];
  }
  // Drops one reference; the last one frees the block.
  void Unref(int32_t id);

  // 0 for a free block.
  int32_t RefCount(int32_t id) const {
    INLAY_DCHECK(id >= 0 && id < num_total());
    return refs_[static_cast<size_t>(id)];
  }
  bool IsUsed(int32_t id) const {
    return id >= 0 && id < num_total() && RefCount(id) > 0;
  }

  int32_t num_total() const { return static_cast<int32_t>(refs_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_used() const { return num_total() - num_free(); }
  // The highest num_used() so far.
  int32_t peak_used() const { return peak_used_; }

  // Tests only: every Allocate() of at least one block asks `fails`, and
  // reports RESOURCE_EXHAUSTED when it says true.
  void SetAllocationFaultForTest(std::function<bool()> fails) {
    fault_ = std::move(fails);
  }

 private:
  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;  // a stack; its capacity is num_total() from the
                               // start, so Unref() never allocates
  int32_t peak_used_ = 0;
  std::function<bool()> fault_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_BLOCK_POOL_H_
