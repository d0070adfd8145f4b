// What all groups have in common, and which of them gives a block up first.
#include "memory/kv/prefix_cache.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "memory/status.h"

namespace inlay {
int64_t KvMatch::num_blocks() const {
  int64_t sum = 0;
  for (const PrefixMatch& group : groups)
    sum += static_cast<int64_t>(group.blocks.size());
  return sum;
}

int64_t KvMatch::num_evictable() const {
  int64_t sum = 0;
  for (const PrefixMatch& group : groups) sum += group.num_evictable;
  return sum;
}

int64_t KvMatch::num_below() const {
  int64_t sum = 0;
  for (const PrefixMatch& group : groups)
    sum += static_cast<int64_t>(group.below.size());
  return sum;
}

PrefixCache::PrefixCache(KvBlockPool* pool, absl::Span<const KvGroup> groups,
                         const PrefixIndex::Options& options)
    : pool_(pool), groups_(groups.begin(), groups.end()) {
  INLAY_DCHECK(pool != nullptr && !groups.empty());
  const bool has_state =
      std::any_of(groups.begin(), groups.end(),
                  [](const KvGroup& g) { return g.is_state; });
  for (const KvGroup& group : groups) {
    PrefixIndex::Options one = options;
    one.group = group;
    one.order = &order_;
    // Without the last token's row its state could not be used either.
    if (has_state) one.min_partial_tokens = 1;
    indexes_.push_back(std::make_unique<PrefixIndex>(pool, std::move(one)));
  }
  pool_->SetReclaimer(this);
}

// The pool asks which index has a block as long as any has one.
PrefixCache::~PrefixCache() {
  for (const auto& index : indexes_) index->ForgetAll();
  pool_->SetReclaimer(nullptr);
}

KvMatch PrefixCache::Find(uint64_t salt, absl::Span<const int32_t> tokens,
                          const KvBelow* below) const {
  KvMatch match;
  match.groups.resize(indexes_.size());
  match.num_tokens = static_cast<int64_t>(tokens.size());
  // Round and round, ever shorter, until as many in a row as there are agree.
  size_t agreed = 0;
  for (size_t turn = 0; agreed < indexes_.size(); ++turn) {
    const size_t g = turn % indexes_.size();
    PrefixMatch& part = match.groups[g];
    const bool seen = turn >= indexes_.size();
    if (!seen || part.num_tokens > match.num_tokens) {
      if (seen && groups_[g].window == 0) {
        indexes_[g]->Shorten(&part, match.num_tokens);
      } else {
        part = indexes_[g]->Find(
            SaltIn(g, salt),
            tokens.first(static_cast<size_t>(match.num_tokens)), below);
      }
    }
    agreed = part.num_tokens == match.num_tokens ? agreed + 1 : 1;
    match.num_tokens = part.num_tokens;
  }
  return match;
}

void PrefixCache::Take(const KvMatch& match, uint64_t salt,
                       absl::Span<const int32_t> tokens, KvTables* tables,
                       PrefixCursors* cursors) {
  auto undo = absl::MakeCleanup([&] {
    tables->Clear();
    cursors->assign(indexes_.size(), PrefixCursor());
  });
  for (size_t g = 0; g < indexes_.size(); ++g) {
    indexes_[g]->Take(match.groups[g], SaltIn(g, salt), tokens,
                      &tables->group(g), &(*cursors)[g]);
  }
  std::move(undo).Cancel();
}

void PrefixCache::Insert(uint64_t salt, absl::Span<const int32_t> tokens,
                         KvTables* tables, PrefixCursors* cursors) {
  for (size_t g = 0; g < indexes_.size(); ++g) {
    indexes_[g]->Insert(SaltIn(g, salt), tokens, &tables->group(g),
                        &(*cursors)[g]);
  }
}

void PrefixCache::InsertAll(uint64_t salt, absl::Span<const int32_t> tokens,
                            KvTables* tables, PrefixCursors* cursors) {
  for (size_t g = 0; g < indexes_.size(); ++g) {
    indexes_[g]->InsertAll(SaltIn(g, salt), tokens, &tables->group(g),
                           &(*cursors)[g]);
  }
}

void PrefixCache::Clear() {
  for (const auto& index : indexes_) index->Clear();
  if (num_blocks() == 0) order_.inflation = 0;
}

void PrefixCache::Reclaim(int64_t count) {
  if (indexes_.size() == 1) return indexes_.front()->Reclaim(count);
  for (; count > 0; --count) {
    PrefixIndex* first = nullptr;
    PrefixIndex::Rank lowest;
    for (const auto& index : indexes_) {
      PrefixIndex::Rank rank;
      if (!index->NextRank(&rank)) continue;
      if (first == nullptr || rank < lowest) {
        first = index.get();
        lowest = rank;
      }
    }
    INLAY_DCHECK(first != nullptr);
    first->Reclaim(1);
  }
}

int64_t PrefixCache::num_blocks() const {
  int64_t sum = 0;
  for (const auto& index : indexes_) sum += index->num_blocks();
  return sum;
}

uint64_t PrefixCache::num_reclaimed() const {
  uint64_t sum = 0;
  for (const auto& index : indexes_) sum += index->num_reclaimed();
  return sum;
}

PrefixIndex& PrefixCache::IndexOf(int32_t id) const {
  size_t g = indexes_.size() - 1;
  while (g > 0 && !indexes_[g]->Contains(id)) --g;
  return *indexes_[g];
}

}  // namespace inlay
