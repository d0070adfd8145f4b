// One sequence's tables, all groups at once.
#include "memory/kv/tables.h"

#include <utility>

namespace inlay {

KvTables::KvTables(KvBlockPool* pool, absl::Span<const KvGroup> groups) {
  INLAY_DCHECK(!groups.empty());
  tables_.reserve(groups.size());
  windows_.reserve(groups.size());
  for (const KvGroup& group : groups) {
    tables_.emplace_back(pool, group.block_size, group.is_state);
    windows_.push_back(group.window);
  }
}

KvTables KvTables::Fork() const {
  KvTables fork;
  fork.windows_ = windows_;
  fork.tables_.reserve(tables_.size());
  for (const KvBlockTable& table : tables_)
    fork.tables_.push_back(table.Fork());
  return fork;
}

void KvTables::Truncate(int64_t num_tokens) {
  for (KvBlockTable& table : tables_) table.Truncate(num_tokens);
}

int64_t KvTables::BlocksNeeded(int64_t extra_tokens) const {
  int64_t blocks = 0;
  for (const KvBlockTable& table : tables_)
    blocks += table.BlocksNeeded(extra_tokens);
  return blocks;
}

int64_t KvTables::AppendCopies() const {
  int64_t copies = 0;
  for (const KvBlockTable& table : tables_)
    copies += table.AppendCopies() ? 1 : 0;
  return copies;
}

void KvTables::DropPassed() {
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (windows_[i] == 0) continue;
    tables_[i].DropBefore(KvFirstRead(num_tokens(), windows_[i]));
  }
}

int64_t KvTables::num_blocks_held() const {
  int64_t blocks = 0;
  for (const KvBlockTable& table : tables_) {
    for (const int32_t id : table.blocks())
      blocks += id != KvBlockTable::kNoBlock ? 1 : 0;
  }
  return blocks;
}

bool KvTables::HasGroups(absl::Span<const KvGroup> groups) const {
  if (groups.size() != tables_.size()) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] !=
        KvGroup{tables_[i].block_size(), windows_[i], tables_[i].is_state()})
      return false;
  }
  return true;
}

absl::StatusOr<KvTablesReservation> KvTablesReservation::Make(
    KvTables* tables, int64_t num_tokens) {
  // In place: a step makes one for each request.
  absl::StatusOr<KvTablesReservation> reservation{KvTablesReservation()};
  auto& parts = reservation->parts_;
  parts.reserve(tables->num_groups());
  for (size_t i = 0; i < tables->num_groups(); ++i) {
    parts.push_back(KvReservation(&tables->group(i), num_tokens));
    INLAY_RETURN_IF_ERROR(parts.back().Fill());
  }
  return reservation;
}

}  // namespace inlay
