// KvCache: sequences filled with blocks whose content comes from elsewhere: a
// tier below, or a snapshot.
#include <algorithm>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "core/engine/kv_cache.h"
#include "memory/status.h"

namespace inlay {
namespace {

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

// Replaces what of the match is below by the blocks `loaded`, filled.
bool KvCache::ReadFromTier(absl::Span<const int32_t> tokens,
                           absl::Span<const int32_t> loaded, KvMatch* match) {
  size_t next = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    PrefixMatch& part = match->groups[g];
    for (const PrefixMatch::Below& below : part.below) {
      const int32_t id = loaded[next++];
      const auto of_block = BlockTokens(tokens, below.index, groups_[g]);
      const auto bytes = storage_.BeginWrite(id);
      if (!bytes.ok()) return false;
      if (!tier_->Get(below.key, Padded(of_block), *bytes)) {
        // So that it is not found again.
        tier_->Drop(below.key);
        return false;
      }
      if (!storage_.FinishWrite(id).ok()) return false;
      part.blocks[static_cast<size_t>(below.index)] = id;
    }
  }
  return true;
}

// False: there is no room, or something is not there after all.
bool KvCache::TakeFromTier(absl::Span<const int32_t> tokens, KvMatch* match,
                           KvSequence* sequence) {
  // Held until the sequence has them, so that making room for the others does
  // not take them away.
  std::vector<int32_t> held;
  held.reserve(static_cast<size_t>(match->num_blocks()));
  const auto release = absl::MakeCleanup([&] {
    for (const int32_t id : held) pool_.Unref(id);
  });
  for (const PrefixMatch& part : match->groups) {
    for (const int32_t id : part.blocks) {
      if (id < 0) continue;
      pool_.Ref(id);
      held.push_back(id);
    }
  }
  auto loaded = pool_.Allocate(match->num_below());
  if (!loaded.ok()) return false;
  held.insert(held.end(), loaded->begin(), loaded->end());
  if (!ReadFromTier(tokens, *loaded, match)) return false;
  auto undo = absl::MakeCleanup([&] { sequence->tables.Clear(); });
  for (size_t g = 0; g < groups_.size(); ++g)
    sequence->tables.group(g).Share(match->groups[g].blocks, match->num_tokens);
  std::move(undo).Cancel();
  return true;
}

int64_t KvCache::Take(uint64_t salt, absl::Span<const int32_t> tokens,
                      KvSequence* sequence) {
  // What the tier could not give it does not have the next time; it may have
  // lost other blocks by then.
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    KvMatch match = Look(salt, tokens);
    if (match.num_below() == 0) break;
    if (!TakeFromTier(tokens, &match, sequence)) continue;
    Publish(salt, tokens, sequence);
    return match.num_tokens;
  }
  const KvMatch match = index_->Find(salt, tokens);
  if (match.num_tokens > 0)
    index_->Take(match, salt, tokens, &sequence->tables, &sequence->cursors);
  return match.num_tokens;
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
