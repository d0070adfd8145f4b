// KvCache: sequences filled with blocks whose content comes from elsewhere: a
// tier below, or a snapshot.
#include <algorithm>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "core/engine/kv_cache.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Blocks to come of a sequence after which the next twice as many are asked
// for.
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

void KvCache::FlushTier() {
  if (tier_ == nullptr) return;
  index_->Clear();
  tier_->Flush();
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
  sequence->num_come = 0;
  return match.num_tokens;
}

absl::Status KvCache::FillFromTier(absl::Span<const int32_t> tokens,
                                   const KvSequence::Coming& from, int32_t id) {
  INLAY_ASSIGN_OR_RETURN(const auto bytes, storage_.BeginWrite(id));
  const auto of_block = BlockTokens(tokens, from.index, groups_[from.group]);
  if (!tier_->Get(from.key, Padded(of_block), bytes))
    return absl::NotFoundError("the tier has lost a block");
  return storage_.FinishWrite(id);
}

void KvCache::PrefetchComing(const KvSequence& sequence) const {
  std::vector<KvBlockKey> keys;
  const size_t end =
      std::min(sequence.coming.size(), sequence.num_come + 2 * kPrefetchEvery);
  keys.reserve(end - sequence.num_come);
  for (size_t i = sequence.num_come; i < end; ++i)
    keys.push_back(sequence.coming[i].key);
  tier_->Prefetch(keys);
}

absl::Status KvCache::LoadBlock(absl::Span<const int32_t> tokens,
                                KvSequence* sequence) {
  const KvSequence::Coming& next = sequence->coming[sequence->num_come];
  // Of those that are on disk alone, the next are on their way to host memory.
  if (sequence->num_come % kPrefetchEvery == 0) PrefetchComing(*sequence);
  INLAY_ASSIGN_OR_RETURN(const std::vector<int32_t> fresh, pool_.Allocate(1));
  auto release = absl::MakeCleanup([&] { pool_.Unref(fresh.front()); });
  if (!FillFromTier(tokens, next, fresh.front()).ok()) {
    // So that it is not found again.
    tier_->Drop(next.key);
    return absl::NotFoundError("a block of the tier cannot be read");
  }
  sequence->tables.group(next.group)
      .Put(static_cast<size_t>(next.index), fresh.front());
  std::move(release).Cancel();
  if (++sequence->num_come == sequence->coming.size()) {
    sequence->coming.clear();
    sequence->num_come = 0;
  }
  return absl::OkStatus();
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
