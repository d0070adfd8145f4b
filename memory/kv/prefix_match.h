// PrefixMatch and PrefixCursor: what a prefix index finds, and how far a table
// has been entered into it. Plain data.
#ifndef INLAY_MEMORY_KV_PREFIX_MATCH_H_
#define INLAY_MEMORY_KV_PREFIX_MATCH_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "memory/kv/block_key.h"

namespace inlay {

// Whether a lower tier has the full block of this key.
using KvBelow = absl::FunctionRef<bool(const KvBlockKey& key)>;

// What is cached of a sequence: its first num_tokens tokens.
struct PrefixMatch {
  // Of `blocks`: only the lower tier has it.
  static constexpr int32_t kBelow = -2;
  struct Below {
    int64_t index;  // in blocks
    KvBlockKey key;
  };

  int64_t num_tokens = 0;
  // KvBlocksFor(num_tokens); the last may hold more tokens than match. With a
  // window, kNoBlock for those that no later token reads.
  std::vector<int32_t> blocks;
  std::vector<Below> below;  // the blocks that are kBelow, in order
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

// What evictable blocks are compared by: shared by the indexes of one pool.
struct EvictionOrder {
  double inflation = 0;  // GreedyDual's L: the priority of what went last
  uint64_t last = 0;     // use
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_PREFIX_MATCH_H_
