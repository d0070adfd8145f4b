#include "core/engine/kv_cache.h"

#include <algorithm>
#include <limits>

#include "absl/memory/memory.h"
#include "absl/strings/str_format.h"
#include "memory/kv/reservation.h"
#include "memory/status.h"

namespace inlay {
namespace {

// A cache of this many extents loses little to rounding, and each is large
// enough to be worth an allocation.
constexpr uint64_t kExtents = 64;
constexpr uint64_t kMaxExtentBytes = 16 << 20;

// What recomputing a block costs grows with the positions it attends: beside a
// token's share of the weights, one position is worth about this much.
constexpr double kCostPerPosition = 1.0 / 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Device* device,
                                                         const KvLayout& layout,
                                                         uint64_t bytes,
                                                         int64_t window) {
  const uint64_t block_bytes = std::max<uint64_t>(layout.block_bytes(), 1);
  const uint64_t most = uint64_t{INT32_MAX} /
                        static_cast<uint64_t>(layout.block_size()) *
                        block_bytes;
  bytes = std::min(bytes, most);
  if (bytes < block_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the KV cache may take %d bytes, one block of %d tokens needs %d",
        bytes, layout.block_size(), block_bytes));
  }
  auto cache = absl::WrapUnique(new KvCache(
      device, layout, std::min(bytes / kExtents, kMaxExtentBytes), window));
  while (cache->bytes() + cache->extent_bytes() <= bytes) {
    INLAY_RETURN_IF_ERROR(cache->AddExtent());
  }
  if (cache->bytes() > 0) return cache;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the KV cache may take %d bytes, on %s it grows by %d", bytes,
      device->info().name, cache->extent_bytes()));
}

KvCache::KvCache(Device* device, const KvLayout& layout,
                 size_t target_extent_bytes, int64_t window)
    : device_(device),
      block_size_(layout.block_size()),
      window_(window),
      storage_(device, std::max<size_t>(layout.block_bytes(), 1),
               target_extent_bytes),
      pool_(0) {
  PrefixIndex::Options options;
  options.block_size = block_size_;
  options.window = window;
  options.cost = [](int64_t end_position) {
    return 1.0 + kCostPerPosition * static_cast<double>(end_position);
  };
  options.demote = [this](const KvBlockKey& key,
                          absl::Span<const int32_t> tokens, int32_t block) {
    if (!tier_pays()) return;
    const auto bytes = storage_.Read(block);
    if (bytes.ok()) tier_->Put(key, tokens, *bytes);
  };
  index_ = std::make_unique<PrefixIndex>(&pool_, std::move(options));
}

absl::Status KvCache::AddExtent() {
  INLAY_ASSIGN_OR_RETURN(const int32_t extent, storage_.AddExtent());
  const int32_t blocks = storage_.blocks_per_extent();
  try {
    pool_.AddBlocks(extent * blocks, blocks);
  } catch (...) {
    storage_.DropExtent(extent);
    return OutOfMemoryError("out of memory for the KV cache's bookkeeping");
  }
  return absl::OkStatus();
}

// Keys of the full blocks from first_block on that the tier has, without a gap.
std::vector<KvBlockKey> KvCache::TierKeys(uint64_t salt,
                                          absl::Span<const int32_t> tokens,
                                          int64_t first_block) const {
  std::vector<KvBlockKey> keys;
  const auto size = static_cast<size_t>(block_size_);
  const size_t blocks = tokens.size() / size;
  if (tier_ == nullptr || static_cast<size_t>(first_block) >= blocks)
    return keys;
  KvBlockKey key = RootKey(salt);
  for (size_t i = 0; i < blocks; ++i) {
    key = ChainKey(key, tokens.subspan(i * size, size));
    if (i < static_cast<size_t>(first_block)) continue;
    if (!tier_->Has(key)) break;
    keys.push_back(key);
  }
  return keys;
}

void KvCache::Prefetch(uint64_t salt, absl::Span<const int32_t> tokens) const {
  if (tier_ == nullptr) return;
  const int64_t cached = index_->Find(salt, tokens).num_tokens / block_size_;
  tier_->Prefetch(TierKeys(salt, tokens, cached));
}

void KvCache::FlushTier() {
  if (tier_ == nullptr) return;
  index_->Clear();
  tier_->Flush();
}

KvCache::Hit KvCache::Look(uint64_t salt,
                           absl::Span<const int32_t> tokens) const {
  Hit hit;
  hit.match = index_->Find(salt, tokens);
  hit.num_tokens = hit.match.num_tokens;
  const int64_t full = hit.num_tokens / block_size_;
  const auto more = static_cast<int64_t>(TierKeys(salt, tokens, full).size());
  if (more == 0) return hit;
  // The tier's first block takes the place of the part of one in the cache.
  if (hit.num_tokens % block_size_ != 0)
    hit.match = index_->Find(
        salt, tokens.first(static_cast<size_t>(full * block_size_)));
  hit.num_tokens = (full + more) * block_size_;
  return hit;
}

absl::Status KvCache::WriteBlock(int32_t id,
                                 absl::Span<const std::byte> bytes) {
  INLAY_ASSIGN_OR_RETURN(const auto room, storage_.BeginWrite(id));
  std::copy(bytes.begin(), bytes.end(), room.begin());
  return storage_.FinishWrite(id);
}

bool KvCache::LoadBlock(const KvBlockKey& key, absl::Span<const int32_t> tokens,
                        KvSequence* sequence) {
  auto room = KvReservation::Make(&sequence->table, block_size_);
  if (!room.ok()) return false;
  const int32_t block = room->block(room->num_blocks() - 1);
  const auto bytes = storage_.BeginWrite(block);
  if (!bytes.ok() || !tier_->Get(key, tokens, *bytes) ||
      !storage_.FinishWrite(block).ok()) {
    return false;
  }
  room->Commit(block_size_);
  return true;
}

int64_t KvCache::Take(uint64_t salt, absl::Span<const int32_t> tokens,
                      KvSequence* sequence) {
  const Hit hit = Look(salt, tokens);
  const int64_t cached = hit.match.num_tokens;
  if (cached > 0) {
    index_->Take(hit.match, salt, tokens.first(static_cast<size_t>(cached)),
                 &sequence->table, &sequence->cursor);
  }
  if (hit.num_tokens == cached) return cached;
  const auto size = static_cast<size_t>(block_size_);
  for (const KvBlockKey& key : TierKeys(salt, tokens, cached / block_size_)) {
    const auto begin = static_cast<size_t>(sequence->table.num_tokens());
    if (!LoadBlock(key, tokens.subspan(begin, size), sequence)) break;
  }
  Publish(salt, tokens, sequence);
  return sequence->table.num_tokens();
}

void KvCache::Publish(uint64_t salt, absl::Span<const int32_t> tokens,
                      KvSequence* sequence) {
  const int64_t full = sequence->table.num_tokens() / block_size_;
  if (full > sequence->cursor.num_blocks) {
    index_->Insert(salt, tokens, &sequence->table, &sequence->cursor);
  }
  if (window_ > 0) {
    sequence->table.DropBefore(sequence->table.num_tokens() - window_ + 1);
  }
}

void KvCache::Retire(uint64_t salt, absl::Span<const int32_t> tokens,
                     KvSequence* sequence) {
  try {
    index_->InsertAll(salt, tokens, &sequence->table, &sequence->cursor);
  } catch (...) {
    // What could not be entered is computed again.
  }
  Clear(sequence);
}

void KvCache::Grow(uint64_t bytes) {
  const int64_t most = INT32_MAX / block_size_;
  while (this->bytes() + extent_bytes() <= bytes &&
         int64_t{pool_.num_total()} + storage_.blocks_per_extent() <= most) {
    if (!AddExtent().ok()) return;
  }
}

void KvCache::Shrink(uint64_t bytes, absl::Span<KvBlockTable* const> held,
                     Stream& stream) {
  while (this->bytes() > bytes) {
    const int32_t blocks = storage_.blocks_per_extent();
    const int32_t surplus = blocks - pool_.num_free();
    if (surplus > 0) {
      INLAY_DCHECK(surplus <= pool_.num_evictable());
      index_->Reclaim(surplus);
    }
    const int32_t extent = EmptiestExtent();
    MoveOut(extent, held, stream);
    pool_.RemoveBlocks(extent * blocks, blocks);
    storage_.DropExtent(extent);
  }
}

int32_t KvCache::EmptiestExtent() const {
  const int32_t blocks = storage_.blocks_per_extent();
  int32_t best = -1;
  int32_t fewest = std::numeric_limits<int32_t>::max();
  for (int32_t extent = 0; extent < storage_.end_extent(); ++extent) {
    if (!storage_.HasExtent(extent)) continue;
    int32_t used = 0;
    for (int32_t i = 0; i < blocks; ++i)
      used += pool_.RefCount(extent * blocks + i) > 0 ? 1 : 0;
    if (used < fewest) {
      fewest = used;
      best = extent;
    }
  }
  return best;
}

void KvCache::MoveOut(int32_t extent, absl::Span<KvBlockTable* const> held,
                      Stream& stream) {
  const int32_t blocks = storage_.blocks_per_extent();
  const int32_t first = extent * blocks;
  std::vector<int32_t> moved(static_cast<size_t>(blocks), -1);
  for (int32_t id = first; id < first + blocks; ++id) {
    if (pool_.RefCount(id) == 0) continue;
    const int32_t to = pool_.FreeBlockOutside(first, blocks);
    // A copy within a device cannot fail but with the device, which every later
    // call reports.
    static_cast<void>(
        device_->Copy(Block(to), Block(id), block_bytes(), stream));
    pool_.Move(id, to);
    if (pool_.IsCached(to)) index_->OnMoved(id, to);
    moved[static_cast<size_t>(id - first)] = to;
  }
  for (KvBlockTable* table : held) {
    const auto ids = table->blocks();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < first || ids[i] >= first + blocks) continue;
      table->SetMoved(i, moved[static_cast<size_t>(ids[i] - first)]);
    }
  }
  static_cast<void>(stream.Synchronize());
}

}  // namespace inlay
