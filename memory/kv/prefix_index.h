// PrefixIndex: which KV blocks of a group hold which tokens, so that a sequence
// that begins like an earlier one shares its blocks. Owns one reference to each
// block it knows; knows no bytes, models or requests, and no other groups
// (prefix_cache.h). Sources: chained block
// hashes as in vLLM's automatic prefix caching, leaf eviction as in
// RadixAttention (Zheng et al., 2024), GreedyDual-Size-Frequency priorities
// (Cherkasova, 1998).
#ifndef INLAY_MEMORY_KV_PREFIX_INDEX_H_
#define INLAY_MEMORY_KV_PREFIX_INDEX_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "memory/kv/block_key.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/eviction_heap.h"
#include "memory/kv/prefix_match.h"
#include "memory/kv/prefix_tree.h"

namespace inlay {

// Thread-compatible, together with the pool.
class PrefixIndex final : public KvBlockReclaimer {
 public:
  static constexpr int kMinPartialTokens = 2;

  struct Options {
    KvGroup group;
    // One of several over the pool, whose reclaimer is whoever made this. Null:
    // the only one, which installs itself as the reclaimer for its lifetime.
    EvictionOrder* order = nullptr;
    // Of a partly filled last block, so many tokens are worth keeping.
    int min_partial_tokens = kMinPartialTokens;
    // What losing the block that ends at this position costs, in any unit;
    // null: all the same. Larger is kept longer.
    std::function<double(int64_t end_position)> cost;
    // Called with a block that is about to be reclaimed (its bytes are intact),
    // so that a lower tier can keep them. Must not fail, throw or use the pool.
    // `tokens`: those of the block; only full blocks are offered. May be null.
    std::function<void(const KvBlockKey& key, absl::Span<const int32_t> tokens,
                       int32_t block)>
        demote;
  };

  PrefixIndex(KvBlockPool* pool, Options options);
  ~PrefixIndex() override;
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest cached beginning of `tokens` under `salt`, full blocks and then
  // part of one. A part is worth a copy only from min_partial_tokens on; of a
  // state's block all tokens it was entered with are wanted. Tokens
  // are compared, not only their hashes; with a window, only the key vouches
  // for the tokens of blocks that are gone. O(blocks matched + 1), with a
  // window O(blocks of `tokens`). `below` (may be null) is asked for full
  // blocks that are not here: they count as though they were. May throw
  // std::bad_alloc.
  PrefixMatch Find(uint64_t salt, absl::Span<const int32_t> tokens,
                   const KvBelow* below = nullptr) const;
  // Cuts `match` to its first num_tokens tokens; only without a window.
  void Shorten(PrefixMatch* match, int64_t num_tokens) const;

  // `table` (empty) becomes a holder of the match, which was found after the
  // last change of index and pool, and has no block that is only below.
  // `tokens` and `salt` as given to Find(). May throw std::bad_alloc, and has
  // changed nothing then.
  void Take(const PrefixMatch& match, uint64_t salt,
            absl::Span<const int32_t> tokens, KvBlockTable* table,
            PrefixCursor* cursor);

  // Enters the full blocks of `table` that the cursor is not past yet.
  // `tokens`: at least those of the table. Where the index already has a block
  // of the same tokens, the table takes that one and gives its own back.
  // Blocks that the table dropped, or that were to come to it, are passed over;
  // a key that collides stops it there. O(blocks entered). May throw
  // std::bad_alloc: what the cursor is past is entered then.
  void Insert(uint64_t salt, absl::Span<const int32_t> tokens,
              KvBlockTable* table, PrefixCursor* cursor);
  // The same, and a partly filled last block too; for a table about to be
  // cleared.
  void InsertAll(uint64_t salt, absl::Span<const int32_t> tokens,
                 KvBlockTable* table, PrefixCursor* cursor);

  // Forgets every evictable block; none is offered to `demote`.
  void Clear();
  // Forgets every block, also those in use.
  void ForgetAll();

  // The pool moved a block (KvBlockPool::Move was called already). Does not
  // fail: without memory to note the new id, the block is forgotten.
  void OnMoved(int32_t from, int32_t to);

  // KvBlockReclaimer.
  void Reclaim(int64_t count) override;
  void OnEvictable(int32_t id) override;
  void OnHeld(int32_t id) override;

  bool Contains(int32_t id) const { return tree_.Contains(id); }
  // Of a block that it contains.
  const KvBlockKey& key(int32_t id) const { return tree_.key(id); }
  // Whether it has the block under `key`, and its tokens begin with these: what
  // a match of before says of `id` still holds.
  bool Has(int32_t id, const KvBlockKey& key,
           absl::Span<const int32_t> tokens) const;
  // An evictable block's place in the order of eviction: the lower goes first.
  struct Rank {
    double priority = 0;
    uint64_t order = 0;  // higher is more recent
    auto operator<=>(const Rank&) const = default;
  };
  // Of what goes first; false: nothing is evictable.
  bool NextRank(Rank* rank) const;

  // Blocks known, evictable or not.
  int64_t num_blocks() const { return num_blocks_; }
  // Since creation.
  uint64_t num_reclaimed() const { return num_reclaimed_; }

  // Tests only: keys that collide, in the place of ChainKey().
  using Chain = KvBlockKey (*)(const KvBlockKey&, absl::Span<const int32_t>);
  void SetChainForTest(Chain chain) { chain_ = chain; }

 private:
  static constexpr int32_t kNone = KvBlockTable::kNoBlock;

  int64_t FirstNeeded(int64_t num_tokens) const {
    return KvFirstNeeded(num_tokens, options_.group);
  }
  // Fits the lists of blocks to num_tokens.
  void Finish(PrefixMatch* match) const;
  PrefixTree::Child Tail(const KvBlockKey& parent,
                         absl::Span<const int32_t> tokens) const;
  bool Enter(const KvBlockKey& key, const KvBlockKey& parent,
             absl::Span<const int32_t> tokens, size_t index,
             KvBlockTable* table);
  void DropSubsumed(int32_t id);
  void Grow();
  void Detach(int32_t id);
  void Remove(int32_t id);
  int32_t Victim() const;

  KvBlockPool* pool_;
  Options options_;
  Chain chain_ = &ChainKey;
  PrefixTree tree_;
  std::vector<Rank> ranks_;  // by block id
  EvictionHeap heap_;        // evictable, and (window 0) without children
  EvictionOrder own_order_;
  EvictionOrder* order_;
  int64_t num_blocks_ = 0;
  uint64_t num_reclaimed_ = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_PREFIX_INDEX_H_
