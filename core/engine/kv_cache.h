// KvCache: the KV blocks of one model: their memory, which of them are in use,
// and what the unused ones still hold. Knows no requests and no scheduling.
#ifndef INLAY_CORE_ENGINE_KV_CACHE_H_
#define INLAY_CORE_ENGINE_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/device/device.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/kv_layout.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/storage.h"
#include "memory/kv/tier.h"

namespace inlay {

// A sequence's KV while a request runs in it; otherwise the index has it.
struct KvSequence {
  explicit KvSequence(KvBlockTable blocks) : table(std::move(blocks)) {}

  // An empty one in the same cache.
  KvSequence Empty() const {
    KvBlockTable blocks = table.Fork();
    blocks.Clear();
    return KvSequence(std::move(blocks));
  }

  KvBlockTable table;
  PrefixCursor cursor;
};

// Thread-compatible: the model runner's mutex guards it, but for base(), which
// the stepping thread reads while it computes.
class KvCache {
 public:
  // Of `bytes`, or as near below it as extents allow; `device` is not owned.
  // window: as PrefixIndex::Options has it. RESOURCE_EXHAUSTED names the bytes.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Device* device,
                                                         const KvLayout& layout,
                                                         uint64_t bytes,
                                                         int64_t window);

  KvSequence NewSequence() {
    return KvSequence(KvBlockTable(&pool_, block_size_));
  }

  // From now on, full blocks that make way go to `tier` while it pays, and come
  // back from there. Owned.
  void SetTier(std::unique_ptr<KvTier> tier) { tier_ = std::move(tier); }
  const KvTier* tier() const { return tier_.get(); }
  // Puts what can be found into the tier's files, if it has any.
  void FlushTier();
  // Whether reading a block back is cheaper than computing it.
  void SetTierPays(bool pays) { tier_pays_ = pays; }
  bool tier_pays() const { return tier_ != nullptr && tier_pays_; }
  // Has what the tier holds of `tokens` on disk read ahead.
  void Prefetch(uint64_t salt, absl::Span<const int32_t> tokens) const;

  // What Take() would find: `match` in the cache, and more full blocks below.
  struct Hit {
    PrefixMatch match;
    int64_t num_tokens = 0;  // match's, or more
  };
  Hit Look(uint64_t salt, absl::Span<const int32_t> tokens) const;

  // What is cached of `tokens`, without tiers.
  PrefixMatch Find(uint64_t salt, absl::Span<const int32_t> tokens) const {
    return index_->Find(salt, tokens);
  }
  // Puts what is cached of `tokens`, or in a tier, into the empty sequence: how
  // many tokens.
  int64_t Take(uint64_t salt, absl::Span<const int32_t> tokens,
               KvSequence* sequence);
  // The full blocks of the sequence can be found by others from now on; what
  // its next tokens do not read goes. tokens: at least those of the table.
  void Publish(uint64_t salt, absl::Span<const int32_t> tokens,
               KvSequence* sequence);
  // The sequence is empty afterwards; what it held can be found.
  void Retire(uint64_t salt, absl::Span<const int32_t> tokens,
              KvSequence* sequence);
  // Empty afterwards; nothing more of it can be found than before.
  static void Clear(KvSequence* sequence) {
    sequence->table.Clear();
    sequence->cursor = PrefixCursor();
  }

  // Adds extents up to `bytes` in all, as far as the device has room.
  void Grow(uint64_t bytes);
  // Gives extents back until at most `bytes` are left. `held` are the tables
  // that hold blocks; what they hold must fit into the rest. Blocks move, and
  // what is only cached makes way.
  void Shrink(uint64_t bytes, absl::Span<KvBlockTable* const> held,
              Stream& stream);

  uint64_t bytes() const {
    return uint64_t{storage_.extent_bytes()} *
           static_cast<uint64_t>(storage_.num_extents());
  }
  uint64_t extent_bytes() const { return storage_.extent_bytes(); }
  // Blocks that the cache has within `bytes`.
  int64_t BlocksWithin(uint64_t bytes) const {
    return static_cast<int64_t>(bytes / storage_.extent_bytes()) *
           storage_.blocks_per_extent();
  }
  KvBase base() const { return storage_.base(); }
  std::byte* Block(int32_t id) const { return storage_.Block(id); }
  // As KvStorage has them: a block for the host to read, or to make.
  absl::StatusOr<absl::Span<const std::byte>> ReadBlock(int32_t id) {
    return storage_.Read(id);
  }
  absl::Status WriteBlock(int32_t id, absl::Span<const std::byte> bytes);
  size_t block_bytes() const { return storage_.block_bytes(); }
  int32_t block_size() const { return block_size_; }
  KvBlockPool& pool() { return pool_; }
  const KvBlockPool& pool() const { return pool_; }
  PrefixIndex& index() { return *index_; }
  // Blocks that something other than the index holds.
  int64_t num_held() const { return pool_.num_used() - pool_.num_evictable(); }

 private:
  KvCache(Device* device, const KvLayout& layout, size_t target_extent_bytes,
          int64_t window);
  absl::Status AddExtent();
  std::vector<KvBlockKey> TierKeys(uint64_t salt,
                                   absl::Span<const int32_t> tokens,
                                   int64_t first_block) const;
  bool LoadBlock(const KvBlockKey& key, absl::Span<const int32_t> tokens,
                 KvSequence* sequence);
  int32_t EmptiestExtent() const;
  void MoveOut(int32_t extent, absl::Span<KvBlockTable* const> held,
               Stream& stream);

  Device* device_;
  const int32_t block_size_;
  const int64_t window_;
  KvStorage storage_;
  KvBlockPool pool_;
  std::unique_ptr<KvTier> tier_;  // the index gives it blocks: goes after it
  bool tier_pays_ = true;
  std::unique_ptr<PrefixIndex> index_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_KV_CACHE_H_
