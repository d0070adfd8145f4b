// KvCache: the KV blocks of one model, of all groups: their memory, which of
// them are in use, and what the unused ones still hold. Knows no requests and
// no scheduling.
#ifndef INLAY_CORE_ENGINE_KV_CACHE_H_
#define INLAY_CORE_ENGINE_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/device/device.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/kv_layout.h"
#include "memory/kv/prefix_cache.h"
#include "memory/kv/storage.h"
#include "memory/kv/tables.h"
#include "memory/kv/tier.h"

namespace inlay {

// A sequence's KV while a request runs in it; otherwise the index has it.
struct KvSequence {
  explicit KvSequence(KvTables blocks)
      : tables(std::move(blocks)), cursors(tables.num_groups()) {}

  // An empty one in the same cache.
  KvSequence Empty() const {
    KvTables blocks = tables.Fork();
    blocks.Clear();
    return KvSequence(std::move(blocks));
  }

  // A block that a tier below has, and the tables have not yet.
  struct Coming {
    size_t group = 0;
    int64_t index = 0;  // in the group's table
    KvBlockKey key;
  };
  int64_t num_coming() const {
    return static_cast<int64_t>(coming.size() - num_come);
  }
  // Tokens, from the front on, whose blocks in `groups` are all there.
  int64_t NumThere(const KvGroups& groups) const;

  KvTables tables;
  PrefixCursors cursors;
  std::vector<Coming> coming;  // group by group, from the front on
  size_t num_come = 0;         // of these, are in the tables by now
  size_t num_asked = 0;        // of these, the tier was asked to read ahead
};

// Thread-compatible: the model runner's mutex guards it, but for base(), which
// the stepping thread reads while it computes.
class KvCache {
 public:
  // Of `bytes`, or as near below it as extents allow; `device` is not owned.
  // RESOURCE_EXHAUSTED names the bytes.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Device* device,
                                                         const KvLayout& layout,
                                                         uint64_t bytes);

  // The least that Create() can make a cache of.
  static uint64_t LeastBytes(Device& device, const KvLayout& layout);

  KvSequence NewSequence() { return KvSequence(KvTables(&pool_, groups_)); }

  // From now on, full blocks that make way go to `tier` while it pays, and come
  // back from there. Owned.
  void SetTier(std::unique_ptr<KvTier> tier) { tier_ = std::move(tier); }
  const KvTier* tier() const { return tier_.get(); }
  // Puts a piece of what can be found into the tier, if that has files, and in
  // the end has it write them, or, where it `waits`, waits for that. False: all
  // is written, or there are none. Nothing is to be put into the cache then.
  bool FlushSome(bool waits);
  // Gives a piece of the memory back. False: there is none left. Nothing but
  // the end may follow.
  bool DropSome();
  // Whether it waits for the files only.
  bool is_flushing() const { return flushes_; }
  // Whether reading a block back is cheaper than computing it.
  void SetTierPays(bool pays) { tier_pays_ = pays; }
  bool tier_pays() const { return tier_ != nullptr && tier_pays_; }
  // Has what the tier holds of `tokens` on disk read ahead.
  void Prefetch(uint64_t salt, absl::Span<const int32_t> tokens) const;

  // What Take() would find, in the cache or below.
  KvMatch Look(uint64_t salt, absl::Span<const int32_t> tokens) const;

  // What is cached of `tokens`, without tiers.
  KvMatch Find(uint64_t salt, absl::Span<const int32_t> tokens) const {
    return index_->Find(salt, tokens);
  }
  // A block of a match, to be known again later.
  struct Located {
    size_t group = 0;
    int64_t index = 0;  // in the sequence's group
    int32_t id = 0;
    KvBlockKey key;
  };
  // Those that the match, just found, has, group by group.
  std::vector<Located> Locate(const KvMatch& match) const;
  // Whether the block is still there: not evicted, and not moved. `tokens`:
  // those of the match.
  bool IsThere(const Located& block, absl::Span<const int32_t> tokens) const;
  // Puts what is cached of `tokens` into the empty sequence: how many tokens.
  int64_t Take(uint64_t salt, absl::Span<const int32_t> tokens,
               KvSequence* sequence);
  // The same with what the tier has, whose blocks are still to come:
  // LoadBlock(), until none is (num_coming()). Uses up no block for those. At
  // most max_tokens, fewer than there are `tokens` or as many.
  int64_t BeginTake(uint64_t salt, absl::Span<const int32_t> tokens,
                    int64_t max_tokens, KvSequence* sequence);
  enum class Came : uint8_t {
    kBlock,
    kOnDisk,  // it is there alone, and is being fetched: another time
    kLost,    // the tier does not have it any more
    kNoRoom,  // no block is free
    kFailed,  // it is there, and cannot be had: the first tokens of its group,
              // up to the block, can
  };
  // The next of them comes. tokens: of the sequence, at least those of
  // BeginTake(). `fetches`: the tier may be told to read it. May throw
  // std::bad_alloc, and has changed nothing then.
  Came LoadBlock(absl::Span<const int32_t> tokens, bool fetches,
                 KvSequence* sequence);
  // Where, in the sequence, the next of them begins.
  int64_t NextComing(const KvSequence& sequence) const {
    const KvSequence::Coming& next = sequence.coming[sequence.num_come];
    return next.index * groups_[next.group].block_size;
  }
  // Gives the empty sequence new blocks for num_tokens tokens, in each group
  // those from first_blocks[group] on; WriteBlock() fills them. False, with
  // nothing changed, when there is no room.
  bool Allocate(int64_t num_tokens, absl::Span<const int64_t> first_blocks,
                KvSequence* sequence);
  // A block of the sequence that nobody else has becomes `bytes`.
  absl::Status WriteBlock(const KvSequence& sequence, size_t group,
                          int64_t index, absl::Span<const std::byte> bytes);
  // The full blocks of the sequence can be found by others from now on; what
  // its next tokens do not read goes. tokens: at least those of the table.
  void Publish(uint64_t salt, absl::Span<const int32_t> tokens,
               KvSequence* sequence);
  // The sequence is empty afterwards; what it held can be found, with blocks
  // still to come to it, too.
  void Retire(uint64_t salt, absl::Span<const int32_t> tokens,
              KvSequence* sequence);
  // Empty afterwards; nothing more of it can be found than before.
  static void Clear(KvSequence* sequence) {
    sequence->tables.Clear();
    sequence->cursors.assign(sequence->cursors.size(), PrefixCursor());
    sequence->coming.clear();
    sequence->num_come = sequence->num_asked = 0;
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
  // As KvStorage::Read: a block for the host to read.
  absl::StatusOr<absl::Span<const std::byte>> HostBlock(int32_t id) {
    return storage_.Read(id);
  }
  size_t block_bytes() const { return storage_.block_bytes(); }
  const KvGroups& groups() const { return groups_; }
  KvBlockPool& pool() { return pool_; }
  const KvBlockPool& pool() const { return pool_; }
  PrefixCache& index() { return *index_; }
  // Blocks that something other than the index holds.
  int64_t num_held() const { return pool_.num_used() - pool_.num_evictable(); }

 private:
  KvCache(Device* device, const KvLayout& layout, size_t target_extent_bytes);
  absl::Status AddExtent();
  // A block's tokens as the tier keeps them; valid until the next call.
  absl::Span<const int32_t> Padded(absl::Span<const int32_t> tokens);
  // As Prefetch(), of the next blocks that are to come.
  void PrefetchComing(KvSequence* sequence) const;
  Came FillFromTier(absl::Span<const int32_t> tokens, bool fetches,
                    const KvSequence::Coming& from, int32_t id);
  // By extent, whether it is one of the `count` with the fewest blocks in use.
  std::vector<bool> EmptiestExtents(int64_t count) const;

  Device* device_;
  const KvGroups groups_;
  const int32_t max_block_size_;
  KvStorage storage_;
  KvBlockPool pool_;
  std::unique_ptr<KvTier> tier_;  // the index gives it blocks: goes after it
  bool tier_pays_ = true;
  bool flushes_ = false;
  std::vector<int32_t> padded_;
  std::unique_ptr<PrefixCache> index_;
};

}  // namespace inlay

#endif  // INLAY_CORE_ENGINE_KV_CACHE_H_
