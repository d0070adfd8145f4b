// PrefixCache: what is cached of a sequence in all groups of layers together.
// Owns a PrefixIndex a group; knows no bytes, models or requests.
#ifndef INLAY_MEMORY_KV_PREFIX_CACHE_H_
#define INLAY_MEMORY_KV_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/kv_group.h"
#include "memory/kv/prefix_index.h"
#include "memory/kv/tables.h"

namespace inlay {

// What is cached of a sequence: its first num_tokens tokens, in every group.
struct KvMatch {
  int64_t num_tokens = 0;
  absl::InlinedVector<PrefixMatch, 2> groups;

  // Sums over the groups; entries of `blocks`, gone ones included.
  int64_t num_blocks() const;
  int64_t num_evictable() const;
  int64_t num_below() const;
};

// By group.
using PrefixCursors = absl::InlinedVector<PrefixCursor, 2>;

// PrefixIndex's rules hold for each group. Thread-compatible, together with the
// pool; installs itself as the pool's reclaimer for its lifetime.
class PrefixCache final : public KvBlockReclaimer {
 public:
  // options: those of every group's index, but for group and order. What a
  // block costs is compared over all groups: their blocks have equal bytes, and
  // so took much the same work.
  PrefixCache(KvBlockPool* pool, absl::Span<const KvGroup> groups,
              const PrefixIndex::Options& options);
  ~PrefixCache() override;

  // The longest beginning of `tokens` that all groups have. Groups without a
  // window have every beginning of what they have; the others have the ends
  // around which they have their window. May throw std::bad_alloc.
  KvMatch Find(uint64_t salt, absl::Span<const int32_t> tokens,
               const KvBelow* below = nullptr) const;

  // As PrefixIndex's, for all groups. Take() may throw std::bad_alloc, and has
  // changed nothing then.
  void Take(const KvMatch& match, uint64_t salt,
            absl::Span<const int32_t> tokens, KvTables* tables,
            PrefixCursors* cursors);
  void Insert(uint64_t salt, absl::Span<const int32_t> tokens, KvTables* tables,
              PrefixCursors* cursors);
  void InsertAll(uint64_t salt, absl::Span<const int32_t> tokens,
                 KvTables* tables, PrefixCursors* cursors);
  void Clear();
  void OnMoved(int32_t from, int32_t to) { IndexOf(from).OnMoved(from, to); }

  // KvBlockReclaimer.
  void Reclaim(int64_t count) override;
  void OnEvictable(int32_t id) override { IndexOf(id).OnEvictable(id); }
  void OnHeld(int32_t id) override { IndexOf(id).OnHeld(id); }

  // What group `group` keeps under a salt of ours. Groups of equal block sizes
  // have equal keys otherwise, and a lower tier knows blocks by their keys
  // alone. Salts are below 2^60.
  static uint64_t SaltIn(size_t group, uint64_t salt) {
    return salt ^ (uint64_t{group} << 60);
  }

  // Sums over the groups.
  int64_t num_blocks() const;
  uint64_t num_reclaimed() const;
  size_t num_groups() const { return indexes_.size(); }
  const PrefixIndex& group(size_t index) const { return *indexes_[index]; }

 private:
  PrefixIndex& IndexOf(int32_t id) const;

  KvBlockPool* pool_;
  KvGroups groups_;
  EvictionOrder order_;
  std::vector<std::unique_ptr<PrefixIndex>> indexes_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_PREFIX_CACHE_H_
