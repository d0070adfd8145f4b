// KvCache: sequences filled with blocks whose content comes from elsewhere: a
// tier below, or a snapshot.
#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "core/engine/kv_cache.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Blocks to come of a sequence after which as many more are asked for, twice
// as many ahead.
constexpr size_t kPrefetchEvery = 32;

// Of a block in a sequence's tokens.
absl::Span<const int32_t> BlockTokens(absl::Span<const int32_t> tokens,
                                      int64_t index, const KvGroup& group) {
  const auto size = static_cast<size_t>(group.block_size);
  return tokens.subspan(static_cast<size_t>(index) * size, size);
}

}  // namespace

absl::Span<const int32_t> KvCache::Padded(absl::Span<const int32_t> tokens) {
  if (tokens.size() == padded_.size()) return tokens;
  // No token is negative.
  std::fill(std::copy(tokens.begin(), tokens.end(), padded_.begin()),
            padded_.end(), -1);
  return padded_;
}

void KvCache::Prefetch(uint64_t salt, absl::Span<const int32_t> tokens) const {
  if (tier_ == nullptr) return;
  std::vector<KvBlockKey> keys;
  for (const PrefixMatch& group : Look(salt, tokens).groups) {
    for (const PrefixMatch::Below& below : group.below)
      keys.push_back(below.key);
  }
  tier_->Prefetch(keys);
}

bool KvCache::FlushSome(bool waits) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  if (tier_ == nullptr || !tier_->has_disk()) return false;
  if (pool_.num_evictable() > 0 && tier_pays()) {
    index_->Reclaim(std::min<int64_t>(
        pool_.num_evictable(),
        static_cast<int64_t>(kPieceBytes / block_bytes()) + 1));
    return true;
  }
  if (waits) {
    tier_->Flush();
    return false;
  }
  if (!flushes_) tier_->BeginFlush();
  flushes_ = true;
  return !tier_->Idle();
}

KvMatch KvCache::Look(uint64_t salt, absl::Span<const int32_t> tokens) const {
  if (tier_ == nullptr) return index_->Find(salt, tokens);
  const auto has = [this](const KvBlockKey& key) { return tier_->Has(key); };
  const KvBelow below = has;
  return index_->Find(salt, tokens, &below);
}

int64_t KvCache::Take(uint64_t salt, absl::Span<const int32_t> tokens,
                      KvSequence* sequence) {
  const KvMatch match = index_->Find(salt, tokens);
  if (match.num_tokens > 0)
    index_->Take(match, salt, tokens, &sequence->tables, &sequence->cursors);
  return match.num_tokens;
}

// Of the tokens behind the most, too: what ends within a full block below is
// found by all of that block's.
int64_t KvCache::BeginTake(uint64_t salt, absl::Span<const int32_t> tokens,
                           int64_t max_tokens, KvSequence* sequence) {
  KvMatch match = Look(salt, tokens);
  if (match.num_tokens > max_tokens) {
    tokens = tokens.first(static_cast<size_t>(max_tokens));
    match = Look(salt, tokens);
  }
  if (match.num_below() == 0) return Take(salt, tokens, sequence);
  std::vector<KvSequence::Coming> coming;
  coming.reserve(static_cast<size_t>(match.num_below()));
  for (size_t g = 0; g < groups_.size(); ++g) {
    PrefixMatch& part = match.groups[g];
    for (const PrefixMatch::Below& below : part.below) {
      coming.push_back({g, below.index, below.key});
      part.blocks[static_cast<size_t>(below.index)] = KvBlockTable::kNoBlock;
    }
  }
  auto undo = absl::MakeCleanup([&] { sequence->tables.Clear(); });
  for (size_t g = 0; g < groups_.size(); ++g)
    sequence->tables.group(g).Share(match.groups[g].blocks, match.num_tokens);
  std::move(undo).Cancel();
  sequence->coming = std::move(coming);
  sequence->num_come = sequence->num_asked = 0;
  return match.num_tokens;
}

int64_t KvSequence::NumThere(const KvGroups& groups) const {
  int64_t there = tables.num_tokens();
  for (size_t i = num_come; i < coming.size(); ++i) {
    const Coming& missing = coming[i];
    const auto before = tables.group(missing.group)
                            .blocks()
                            .first(static_cast<size_t>(missing.index));
    // With a window, what lies before it is not there either.
    const bool any = absl::c_any_of(
        before, [](int32_t id) { return id != KvBlockTable::kNoBlock; });
    there = std::min(
        there, any ? missing.index * groups[missing.group].block_size : 0);
  }
  return there;
}

KvCache::Came KvCache::FillFromTier(absl::Span<const int32_t> tokens,
                                    bool fetches,
                                    const KvSequence::Coming& from,
                                    int32_t id) {
  const auto bytes = storage_.BeginWrite(id);
  if (!bytes.ok()) return Came::kFailed;
  const auto of_block =
      Padded(BlockTokens(tokens, from.index, groups_[from.group]));
  while (true) {
    switch (tier_->Get(from.key, of_block, *bytes)) {
      case KvTier::Got::kBlock:
        return storage_.FinishWrite(id).ok() ? Came::kBlock : Came::kFailed;
      case KvTier::Got::kLost:
        // What is another's must not be found again.
        tier_->Drop(from.key);
        return Came::kLost;
      case KvTier::Got::kFailed:
        return Came::kFailed;
      case KvTier::Got::kOnDisk:
        // Here by now, unless there is something to wait for.
        if (!fetches || tier_->Fetch(from.key)) return Came::kOnDisk;
    }
  }
}

void KvCache::PrefetchComing(KvSequence* sequence) const {
  std::vector<KvBlockKey> keys;
  const size_t end = std::min(sequence->coming.size(),
                              sequence->num_come + 2 * kPrefetchEvery);
  const size_t begin = std::max(sequence->num_asked, sequence->num_come);
  if (begin >= end) return;
  keys.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) keys.push_back(sequence->coming[i].key);
  tier_->Prefetch(keys);
  sequence->num_asked = end;
}

KvCache::Came KvCache::LoadBlock(absl::Span<const int32_t> tokens, bool fetches,
                                 KvSequence* sequence) {
  const KvSequence::Coming& next = sequence->coming[sequence->num_come];
  // Of those that are on disk alone, the next are on their way to host memory.
  if (sequence->num_come % kPrefetchEvery == 0) PrefetchComing(sequence);
  const auto fresh = pool_.Allocate(1);
  if (!fresh.ok()) return Came::kNoRoom;
  auto release = absl::MakeCleanup([&] { pool_.Unref(fresh->front()); });
  const Came came = FillFromTier(tokens, fetches, next, fresh->front());
  if (came != Came::kBlock) return came;
  sequence->tables.group(next.group)
      .Put(static_cast<size_t>(next.index), fresh->front());
  std::move(release).Cancel();
  if (++sequence->num_come == sequence->coming.size()) {
    sequence->coming.clear();
    sequence->num_come = sequence->num_asked = 0;
  }
  return Came::kBlock;
}

bool KvCache::Allocate(int64_t num_tokens,
                       absl::Span<const int64_t> first_blocks,
                       KvSequence* sequence) {
  int64_t count = 0;
  for (size_t g = 0; g < groups_.size(); ++g)
    count += KvBlocksFor(num_tokens, groups_[g].block_size) - first_blocks[g];
  auto fresh = pool_.Allocate(count);
  if (!fresh.ok()) return false;
  const auto release = absl::MakeCleanup([&] {
    for (const int32_t id : *fresh) pool_.Unref(id);
  });
  auto undo = absl::MakeCleanup([&] { sequence->tables.Clear(); });
  auto next = fresh->begin();
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t> blocks(
        static_cast<size_t>(KvBlocksFor(num_tokens, groups_[g].block_size)),
        KvBlockTable::kNoBlock);
    for (auto i = static_cast<size_t>(first_blocks[g]); i < blocks.size(); ++i)
      blocks[i] = *next++;
    sequence->tables.group(g).Share(blocks, num_tokens);
  }
  std::move(undo).Cancel();
  return true;
}

absl::Status KvCache::WriteBlock(const KvSequence& sequence, size_t group,
                                 int64_t index,
                                 absl::Span<const std::byte> bytes) {
  const int32_t id =
      sequence.tables.group(group).blocks()[static_cast<size_t>(index)];
  INLAY_ASSIGN_OR_RETURN(const auto to, storage_.BeginWrite(id));
  std::copy(bytes.begin(), bytes.end(), to.begin());
  return storage_.FinishWrite(id);
}

}  // namespace inlay
