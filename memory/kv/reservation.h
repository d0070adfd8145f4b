// KvReservation: room for the next tokens of one table, given back unless
// committed. Owns the new blocks until then; knows no bytes, models or
// requests. It is how a failed step leaves no trace.
#ifndef INLAY_MEMORY_KV_RESERVATION_H_
#define INLAY_MEMORY_KV_RESERVATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/kv/block_table.h"

namespace inlay {

// While it is held, the table keeps its committed tokens and blocks, and may be
// forked, but not truncated, cleared, moved or reserved again. The order is:
// Make, do copy(), write the KV of the new tokens into blocks(), Commit. Copies
// of all reservations of a step come before its writes and commits.
// Thread-compatible, together with the pool.
class KvReservation {
 public:
  // Room for num_tokens more tokens of `*table` (not owned, must outlive the
  // reservation): the blocks that they need past the table's last, and a
  // replacement of that last block when it is partly filled and shared.
  // RESOURCE_EXHAUSTED: not enough free blocks; INVALID_ARGUMENT: num_tokens <
  // 0. The table is unchanged in every case.
  static absl::StatusOr<KvReservation> Make(KvBlockTable* table,
                                            int64_t num_tokens);

  ~KvReservation() { Release(); }
  KvReservation(KvReservation&& other) noexcept;
  KvReservation& operator=(KvReservation&& other) noexcept;

  // What must be copied before the first write; nothing in most steps.
  std::optional<KvBlockCopy> copy() const {
    return is_state() ? std::nullopt : copy_;
  }
  // Of a table of states: the step reads source(), and writes the state after
  // block i's last new token into block(i). kNoBlock: there is no token yet.
  bool is_state() const { return table_->is_state_; }
  int32_t source() const {
    return table_->blocks_.empty() ? KvBlockTable::kNoBlock
                                   : table_->blocks_.back();
  }

  // The block list that the step reads and writes: the table's blocks (its last
  // one replaced when copied), then the new.
  int64_t num_blocks() const;
  int32_t block(int64_t index) const;
  // Writes the first out.size() (<= num_blocks()) ids to `out`: a row of the
  // batch's block table.
  void CopyBlocksTo(absl::Span<int32_t> out) const;

  // Tokens valid in the table now: the new ones begin at this position.
  int64_t first_token() const { return table_->num_tokens_; }
  int64_t num_tokens() const { return num_tokens_; }

  // The first `tokens` (0 .. num_tokens()) of the new tokens are valid now:
  // they and their blocks become the table's, whole blocks past them go back to
  // the pool. Cannot fail. The reservation is spent: only destruction and
  // assignment may follow.
  void Commit(int64_t tokens);

 private:
  friend class KvTablesReservation;

  KvReservation(KvBlockTable* table, int64_t num_tokens)
      : table_(table), num_tokens_(num_tokens) {}
  // Takes the blocks.
  absl::Status Fill();
  void Release();

  KvBlockTable* table_;
  int64_t num_tokens_;
  // copy_->dst is owned and takes the place of copy_->src, which stays the
  // table's until then.
  std::optional<KvBlockCopy> copy_;
  std::vector<int32_t> new_blocks_;  // owned, one reference each
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_RESERVATION_H_
