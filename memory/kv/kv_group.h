// KvGroup: layers whose KV is kept equally long. Plain data and arithmetic;
// knows no layers, blocks or pools.
#ifndef INLAY_MEMORY_KV_KV_GROUP_H_
#define INLAY_MEMORY_KV_KV_GROUP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace inlay {

// Every group has a block table of its own over the one pool. Blocks of all
// groups have the same bytes: the fewer layers are in a group, the more tokens
// its blocks hold.
struct KvGroup {
  int32_t block_size = 16;  // tokens a block, >= 1
  // > 0: a token at position p reads positions (p - window, p] only, in every
  // layer of the group; blocks before that need not be there. 0: it reads all.
  int64_t window = 0;
  // A block holds no rows of tokens but what recurrent layers have made of all
  // tokens up to its last (README.md). It is never written again: the token
  // after goes to another block, full or not. window is 1 then.
  bool is_state = false;

  bool operator==(const KvGroup&) const = default;
};

// Of a model or a scheduler: at least one, the one that reaches furthest back
// first.
using KvGroups = absl::InlinedVector<KvGroup, 2>;
inline constexpr size_t kMaxKvGroups = 4;

// Blocks that `num_tokens` tokens occupy. Both >= 0, block_size >= 1.
inline int64_t KvBlocksFor(int64_t num_tokens, int64_t block_size) {
  return num_tokens / block_size + (num_tokens % block_size != 0 ? 1 : 0);
}

// The same in all groups together.
inline int64_t KvBlocksFor(int64_t num_tokens,
                           absl::Span<const KvGroup> groups) {
  int64_t blocks = 0;
  for (const KvGroup& group : groups)
    blocks += KvBlocksFor(num_tokens, group.block_size);
  return blocks;
}

// Of a sequence of num_tokens tokens, the first position that a later token
// reads. With a window of 1 that would be none; the last one is kept, so that a
// table always has the block that it appends to.
inline int64_t KvFirstRead(int64_t num_tokens, int64_t window) {
  if (window == 0) return 0;
  return std::max<int64_t>(0, num_tokens + 1 - std::max<int64_t>(window, 2));
}

// The block that it is in.
inline int64_t KvFirstNeeded(int64_t num_tokens, const KvGroup& group) {
  return KvFirstRead(num_tokens, group.window) / group.block_size;
}

// Blocks that a sequence of num_tokens tokens holds between steps.
inline int64_t KvHeldBlocks(int64_t num_tokens,
                            absl::Span<const KvGroup> groups) {
  int64_t blocks = 0;
  for (const KvGroup& group : groups) {
    blocks += KvBlocksFor(num_tokens, group.block_size) -
              KvFirstNeeded(num_tokens, group);
  }
  return blocks;
}

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_KV_GROUP_H_
