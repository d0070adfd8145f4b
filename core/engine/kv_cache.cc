// The cache's memory and what is found in it; kv_cache_tier.cc: what is below.
#include "core/engine/kv_cache.h"

#include <algorithm>
#include <vector>

#include "absl/memory/memory.h"
#include "memory/formatted_string.h"
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
                                                         uint64_t bytes) {
  const uint64_t block_bytes = std::max<uint64_t>(layout.block_bytes(), 1);
  const uint64_t most = uint64_t{INT32_MAX} /
                        static_cast<uint64_t>(layout.max_block_size()) *
                        block_bytes;
  bytes = std::min(bytes, most);
  if (bytes < block_bytes) {
    return absl::ResourceExhaustedError(FormattedString(
        "the KV cache may take %d bytes, one block of %d tokens needs %d",
        bytes, layout.block_size(), block_bytes));
  }
  auto cache = absl::WrapUnique(
      new KvCache(device, layout, std::min(bytes / kExtents, kMaxExtentBytes)));
  while (cache->bytes() + cache->extent_bytes() <= bytes) {
    INLAY_RETURN_IF_ERROR(cache->AddExtent());
  }
  if (cache->bytes() > 0) return cache;
  return absl::ResourceExhaustedError(
      FormattedString("the KV cache may take %d bytes, on %s it grows by %d",
                      bytes, device->info().name, cache->extent_bytes()));
}

uint64_t KvCache::LeastBytes(Device& device, const KvLayout& layout) {
  const size_t block_bytes = std::max<size_t>(layout.block_bytes(), 1);
  return KvStorage(&device, block_bytes, block_bytes).extent_bytes();
}

KvCache::KvCache(Device* device, const KvLayout& layout,
                 size_t target_extent_bytes)
    : device_(device),
      groups_(layout.groups().begin(), layout.groups().end()),
      max_block_size_(layout.max_block_size()),
      storage_(device, std::max<size_t>(layout.block_bytes(), 1),
               target_extent_bytes),
      pool_(0),
      padded_(static_cast<size_t>(max_block_size_)) {
  PrefixIndex::Options options;
  options.cost = [](int64_t end_position) {
    return 1.0 + kCostPerPosition * static_cast<double>(end_position);
  };
  options.demote = [this](const KvBlockKey& key,
                          absl::Span<const int32_t> tokens, int32_t block) {
    if (!tier_pays()) return;
    const auto bytes = storage_.Read(block);
    if (bytes.ok()) tier_->Put(key, Padded(tokens), *bytes);
  };
  index_ = std::make_unique<PrefixCache>(&pool_, groups_, options);
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

std::vector<KvCache::Located> KvCache::Locate(const KvMatch& match) const {
  std::vector<Located> located;
  located.reserve(static_cast<size_t>(match.num_blocks()));
  for (size_t g = 0; g < match.groups.size(); ++g) {
    const std::vector<int32_t>& blocks = match.groups[g].blocks;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] < 0) continue;
      located.push_back({g, static_cast<int64_t>(i), blocks[i],
                         index_->group(g).key(blocks[i])});
    }
  }
  return located;
}

bool KvCache::IsThere(const Located& block,
                      absl::Span<const int32_t> tokens) const {
  const auto size = static_cast<size_t>(groups_[block.group].block_size);
  return index_->group(block.group)
      .Has(block.id, block.key,
           tokens.subspan(static_cast<size_t>(block.index) * size, size));
}

void KvCache::Publish(uint64_t salt, absl::Span<const int32_t> tokens,
                      KvSequence* sequence) {
  index_->Insert(salt, tokens, &sequence->tables, &sequence->cursors);
  sequence->tables.DropPassed();
}

void KvCache::Retire(uint64_t salt, absl::Span<const int32_t> tokens,
                     KvSequence* sequence) {
  try {
    index_->InsertAll(salt, tokens, &sequence->tables, &sequence->cursors);
  } catch (...) {
    // What could not be entered is computed again.
  }
  Clear(sequence);
}

void KvCache::Grow(uint64_t bytes) {
  const int64_t most = INT32_MAX / max_block_size_;
  while (this->bytes() + extent_bytes() <= bytes &&
         int64_t{pool_.num_total()} + storage_.blocks_per_extent() <= most) {
    if (!AddExtent().ok()) return;
  }
}

void KvCache::Shrink(uint64_t bytes, absl::Span<KvBlockTable* const> held,
                     Stream& stream) {
  if (this->bytes() <= bytes) return;
  const int32_t blocks = storage_.blocks_per_extent();
  const auto count = static_cast<int64_t>(
      (this->bytes() - bytes + extent_bytes() - 1) / extent_bytes());
  // Should memory run out, then before anything moves.
  std::vector<int32_t> moved(static_cast<size_t>(pool_.end_id()), -1);
  const int64_t surplus = count * blocks - pool_.num_free();
  if (surplus > 0) {
    INLAY_DCHECK(surplus <= pool_.num_evictable());
    index_->Reclaim(surplus);
  }
  const std::vector<bool> leaving = EmptiestExtents(count);
  const auto leaves = [&](int32_t id) {
    return static_cast<bool>(leaving[static_cast<size_t>(id / blocks)]);
  };
  pool_.RemoveBlocks(leaves, [&](int32_t from, int32_t to) {
    // A copy within a device cannot fail but with the device, which every later
    // call reports.
    static_cast<void>(
        device_->Copy(Block(to), Block(from), block_bytes(), stream));
    if (pool_.IsCached(to)) index_->OnMoved(from, to);
    moved[static_cast<size_t>(from)] = to;
  });
  for (KvBlockTable* table : held) {
    const auto ids = table->blocks();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == KvBlockTable::kNoBlock) continue;
      const int32_t to = moved[static_cast<size_t>(ids[i])];
      if (to >= 0) table->SetMoved(i, to);
    }
  }
  static_cast<void>(stream.Synchronize());
  for (size_t extent = 0; extent < leaving.size(); ++extent) {
    if (leaving[extent]) storage_.DropExtent(static_cast<int32_t>(extent));
  }
}

bool KvCache::DropSome() {
  constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
  uint64_t dropped = 0;
  for (int32_t extent = storage_.end_extent(); extent-- > 0;) {
    if (!storage_.HasExtent(extent)) continue;
    storage_.DropExtent(extent);
    dropped += extent_bytes();
    if (dropped >= kPieceBytes) return true;
  }
  return dropped > 0;
}

std::vector<bool> KvCache::EmptiestExtents(int64_t count) const {
  const int32_t blocks = storage_.blocks_per_extent();
  struct Extent {
    int32_t used = 0;
    int32_t index = 0;
    bool operator<(const Extent& other) const {
      return used != other.used ? used < other.used : index < other.index;
    }
  };
  std::vector<Extent> extents;
  for (int32_t index = 0; index < storage_.end_extent(); ++index) {
    if (!storage_.HasExtent(index)) continue;
    Extent extent{0, index};
    for (int32_t i = 0; i < blocks; ++i)
      extent.used += pool_.RefCount(index * blocks + i) > 0 ? 1 : 0;
    extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end());
  std::vector<bool> emptiest(static_cast<size_t>(storage_.end_extent()));
  for (int64_t i = 0; i < count; ++i)
    emptiest[static_cast<size_t>(extents[static_cast<size_t>(i)].index)] = true;
  return emptiest;
}

}  // namespace inlay
