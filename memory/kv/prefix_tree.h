// PrefixTree: which block holds which tokens after which others. Owns copies of
// the tokens and the links between blocks; knows no pool, no references and no
// eviction (prefix_index.h).
#ifndef INLAY_MEMORY_KV_PREFIX_TREE_H_
#define INLAY_MEMORY_KV_PREFIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/kv/block_key.h"
#include "memory/kv/key_table.h"

namespace inlay {

// Ids are small numbers >= 0, those of a pool. Thread-compatible.
class PrefixTree {
 public:
  static constexpr int32_t kNone = KeyTable::kNone;
  // Lookup(): the key names other tokens.
  static constexpr int32_t kCollision = -2;
  // Of one parent, so many blocks are looked at, those linked last: bounds the
  // time of a lookup.
  static constexpr int kMaxChildrenSeen = 16;

  struct Child {
    int32_t id = kNone;
    int64_t common = 0;  // tokens
  };

  explicit PrefixTree(int32_t block_size) : block_size_(block_size) {}

  // Room for ids below `end`. May throw std::bad_alloc; the content stays.
  void Reserve(int32_t end);

  // `id` may be one that there is no room for.
  bool Contains(int32_t id) const {
    return static_cast<size_t>(id) < nodes_.size() && At(id).num_tokens > 0;
  }
  // The following are of ids that are contained.
  const KvBlockKey& key(int32_t id) const { return At(id).key; }
  int64_t end_position(int32_t id) const { return At(id).end_position; }
  // A full block's, or the beginning of one.
  absl::Span<const int32_t> tokens(int32_t id) const;
  // The next of the same parent, linked before it; or kNone.
  int32_t older(int32_t id) const { return At(id).older; }
  bool HasChildren(int32_t id) const;

  // The block of exactly these tokens under `key`; kNone; kCollision.
  int32_t Lookup(const KvBlockKey& key, const KvBlockKey& parent,
                 absl::Span<const int32_t> tokens) const;
  // The child of `parent` that begins with most of `tokens`, the newest of
  // equals; none where no token is common.
  Child BestChild(const KvBlockKey& parent,
                  absl::Span<const int32_t> tokens) const;

  // The longest child of `parent` whose tokens `tokens` begins with.
  Child LongestWhole(const KvBlockKey& parent,
                     absl::Span<const int32_t> tokens) const;

  // `id`, for which there is room, holds `tokens` (1 .. block_size) that end at
  // end_position and follow `parent`; Lookup() gave kNone. `parent` need not be
  // contained: a root never is.
  void Link(int32_t id, const KvBlockKey& key, const KvBlockKey& parent,
            absl::Span<const int32_t> tokens, int64_t end_position);
  // Forgets `id`. Its parent, if that has no other child now; or kNone. The
  // children keep their place.
  int32_t Unlink(int32_t id);
  // What was called `from` is called `to`, for which there is room.
  void Rename(int32_t from, int32_t to);

 private:
  struct Node {
    KvBlockKey key;
    KvBlockKey parent;
    int64_t end_position = 0;
    int32_t num_tokens = 0;  // 0: not contained
    int32_t older = kNone;   // siblings
    int32_t newer = kNone;
  };

  Node& At(int32_t id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& At(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  int32_t* TokensOf(int32_t id) {
    return tokens_.data() + static_cast<ptrdiff_t>(id) * block_size_;
  }
  int32_t block_size_;
  // Of each block, and of each parent that is not there (a root, or gone).
  KeyTable keys_;
  std::vector<Node> nodes_;      // by id
  std::vector<int32_t> tokens_;  // [id][block_size]
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_PREFIX_TREE_H_
