// KvTables: the KV blocks of one token sequence in all groups of layers.
// Owns a KvBlockTable a group; knows no bytes, models or requests.
#ifndef INLAY_MEMORY_KV_TABLES_H_
#define INLAY_MEMORY_KV_TABLES_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/kv/block_pool.h"
#include "memory/kv/block_table.h"
#include "memory/kv/kv_group.h"
#include "memory/kv/reservation.h"

namespace inlay {

// All groups hold the same tokens, each less what its window has passed.
// Thread-compatible, together with the pool.
class KvTables {
 public:
  // `pool` is not owned and must outlive the tables. groups: at least one.
  KvTables(KvBlockPool* pool, absl::Span<const KvGroup> groups);
  // One group without a window.
  KvTables(KvBlockPool* pool, int32_t block_size)
      : KvTables(pool, {KvGroup{block_size, 0}}) {}

  // KvBlockTable's, of every group.
  KvTables Fork() const;
  void Truncate(int64_t num_tokens);
  void Clear() { Truncate(0); }
  int64_t BlocksNeeded(int64_t extra_tokens) const;
  // In how many groups the next token goes to a copy of the last block.
  int64_t AppendCopies() const;
  // Drops the blocks that no later token reads.
  void DropPassed();

  int64_t num_tokens() const { return tables_.front().num_tokens(); }
  // References to blocks of the pool.
  int64_t num_blocks_held() const;
  size_t num_groups() const { return tables_.size(); }
  KvBlockTable& group(size_t index) { return tables_[index]; }
  const KvBlockTable& group(size_t index) const { return tables_[index]; }
  // Whether its groups are these.
  bool HasGroups(absl::Span<const KvGroup> groups) const;

 private:
  KvTables() = default;

  absl::InlinedVector<KvBlockTable, 2> tables_;
  absl::InlinedVector<int64_t, 2> windows_;  // of KvGroup
};

// Room for a sequence's next tokens in all its groups, given back unless
// committed; KvReservation's rules hold for it as a whole.
class KvTablesReservation {
 public:
  // In every group, or in none. Errors are KvReservation's.
  static absl::StatusOr<KvTablesReservation> Make(KvTables* tables,
                                                  int64_t num_tokens);

  void Commit(int64_t tokens) {
    for (KvReservation& part : parts_) part.Commit(tokens);
  }
  int64_t first_token() const { return parts_.front().first_token(); }
  int64_t num_tokens() const { return parts_.front().num_tokens(); }
  size_t num_groups() const { return parts_.size(); }
  // Its block list, and the copy to make.
  const KvReservation& group(size_t index) const { return parts_[index]; }

 private:
  absl::InlinedVector<KvReservation, 2> parts_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_TABLES_H_
