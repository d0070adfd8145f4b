// PrefixIndex: which KV blocks hold which tokens, so that a sequence that
// begins like an earlier one shares its blocks. Owns one reference to each
// block it knows; knows no bytes, models or requests. Sources: chained block
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
#include "memory/kv/prefix_tree.h"

namespace inlay {

// What is cached of a sequence: its first num_tokens tokens.
struct PrefixMatch {
  int64_t num_tokens = 0;
  // KvBlocksFor(num_tokens); the last may hold more tokens than match. With a
  // window, kNoBlock for those that no later token reads.
  std::vector<int32_t> blocks;
  // Of blocks, those that are evictable: taking them uses up availability.
  int32_t num_evictable = 0;
};

// How far a table has been entered into the index: its first num_blocks blocks,
// the last under `key`. Belongs to whoever owns the table; starts over (as
// PrefixCursor()) when the table is cleared or cut into these blocks.
struct PrefixCursor {
  KvBlockKey key;
  int64_t num_blocks = 0;
};

// Thread-compatible, together with the pool. Installs itself as the pool's
// reclaimer for its lifetime.
class PrefixIndex final : public KvBlockReclaimer {
 public:
  struct Options {
    int32_t block_size = 16;
    // > 0: a token at position p reads positions (p - window, p] only, in every
    // layer; blocks before that need not be there.
    int64_t window = 0;
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
  // part of one. A part is worth a copy only from kMinPartialTokens on. Tokens
  // are compared, not only their hashes; with a window, only the key vouches
  // for the tokens of blocks that are gone. O(blocks matched + 1), with a
  // window O(blocks of `tokens`). May throw std::bad_alloc.
  PrefixMatch Find(uint64_t salt, absl::Span<const int32_t> tokens) const;

  // `table` (empty) becomes a holder of the match, which was found after the
  // last change of index and pool. `tokens` and `salt` as given to Find(). May
  // throw std::bad_alloc, and has changed nothing then.
  void Take(const PrefixMatch& match, uint64_t salt,
            absl::Span<const int32_t> tokens, KvBlockTable* table,
            PrefixCursor* cursor);

  // Enters the full blocks of `table` that the cursor is not past yet.
  // `tokens`: at least those of the table. Where the index already has a block
  // of the same tokens, the table takes that one and gives its own back.
  // Blocks that the table dropped are passed over; a key that collides stops it
  // there. O(blocks entered). May throw std::bad_alloc: what the cursor is past
  // is entered then.
  void Insert(uint64_t salt, absl::Span<const int32_t> tokens,
              KvBlockTable* table, PrefixCursor* cursor);
  // The same, and a partly filled last block too; for a table about to be
  // cleared.
  void InsertAll(uint64_t salt, absl::Span<const int32_t> tokens,
                 KvBlockTable* table, PrefixCursor* cursor);

  // Forgets every evictable block; none is offered to `demote`.
  void Clear();

  // The pool moved a block (KvBlockPool::Move was called already). Does not
  // fail: without memory to note the new id, the block is forgotten.
  void OnMoved(int32_t from, int32_t to);

  // KvBlockReclaimer.
  void Reclaim(int64_t count) override;
  void OnEvictable(int32_t id) override;
  void OnHeld(int32_t id) override;

  // Blocks known, evictable or not.
  int64_t num_blocks() const { return num_blocks_; }
  // Since creation.
  uint64_t num_reclaimed() const { return num_reclaimed_; }
  static constexpr int kMinPartialTokens = 2;

  // Tests only: keys that collide, in the place of ChainKey().
  using Chain = KvBlockKey (*)(const KvBlockKey&, absl::Span<const int32_t>);
  void SetChainForTest(Chain chain) { chain_ = chain; }

 private:
  static constexpr int32_t kNone = KvBlockTable::kNoBlock;

  // An evictable block's place in the order of eviction: the lower goes first.
  struct Rank {
    double priority = 0;
    uint64_t order = 0;  // higher is more recent
  };

  int64_t FirstNeeded(int64_t num_tokens) const;
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
  double inflation_ = 0;     // GreedyDual's L: the priority of what went last
  uint64_t last_order_ = 0;
  int64_t num_blocks_ = 0;
  uint64_t num_reclaimed_ = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_PREFIX_INDEX_H_
