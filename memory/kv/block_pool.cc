// The free list, the reference counts and the cache marks of KV blocks.
#include "memory/kv/block_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace inlay {

KvBlockPool::KvBlockPool(int32_t num_blocks) {
  INLAY_DCHECK(num_blocks >= 0);
  AddBlocks(0, num_blocks);
}

void KvBlockPool::AddBlocks(int32_t first, int32_t count) {
  INLAY_DCHECK(first >= 0 && count >= 0);
  const auto end = static_cast<size_t>(std::max(end_id(), first + count));
  // Twice as many where there is no room: a large cache comes extent by extent.
  if (end > free_.capacity()) {
    const size_t room = std::max(end, 2 * free_.capacity());
    refs_.reserve(room);
    state_.reserve(room);
    free_.reserve(room);
  }
  refs_.resize(end, 0);
  state_.resize(end, kAbsent);
  for (int32_t id = first + count - 1; id >= first; --id) {
    uint8_t& state = state_[static_cast<size_t>(id)];
    INLAY_DCHECK(state == kAbsent);
    state = kPresent;
    free_.push_back(id);
  }
  num_total_ += count;
}

void KvBlockPool::RemoveBlocks(
    absl::FunctionRef<bool(int32_t id)> leaves,
    absl::FunctionRef<void(int32_t from, int32_t to)> moved) {
  std::erase_if(free_, leaves);
  for (int32_t id = 0; id < end_id(); ++id) {
    if (state_[static_cast<size_t>(id)] == kAbsent || !leaves(id)) continue;
    const bool is_used = RefCount(id) > 0;
    const int32_t to = is_used ? free_.back() : -1;
    if (is_used) {
      Move(id, to);
      free_.pop_back();  // where it put `id`
    }
    state_[static_cast<size_t>(id)] = kAbsent;
    --num_total_;
    if (is_used) moved(id, to);
  }
}

absl::StatusOr<std::vector<int32_t>> KvBlockPool::Allocate(int64_t count) {
  if (count < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("KV blocks to allocate: got ", count, ", must be >= 0"));
  if (count > num_available()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "KV blocks: ", count, " wanted, ", num_free(), " free and ",
        num_evictable(), " evictable of ", num_total()));
  }
  if (count > 0 && fault_ && fault_())
    return absl::ResourceExhaustedError("KV blocks: injected fault");
  std::vector<int32_t> ids(static_cast<size_t>(count));
  if (count > num_free()) reclaimer_->Reclaim(count - num_free());
  INLAY_DCHECK(count <= num_free());
  std::copy_n(free_.rbegin(), count, ids.begin());
  free_.resize(free_.size() - ids.size());
  for (int32_t id : ids) {
    INLAY_DCHECK(RefCount(id) == 0);
    refs_[static_cast<size_t>(id)] = 1;
  }
  peak_used_ = std::max(peak_used_, num_used());
  return ids;
}

void KvBlockPool::Unref(int32_t id) {
  INLAY_DCHECK(IsUsed(id) && !IsEvictable(id));
  if (--refs_[static_cast<size_t>(id)] == 0) free_.push_back(id);
  if (!IsEvictable(id)) return;
  ++num_evictable_;
  reclaimer_->OnEvictable(id);
}

void KvBlockPool::BecomeHeld(int32_t id) {
  --num_evictable_;
  reclaimer_->OnHeld(id);
}

void KvBlockPool::AddToCache(int32_t id) {
  INLAY_DCHECK(IsUsed(id) && !IsCached(id));
  ++refs_[static_cast<size_t>(id)];
  state_[static_cast<size_t>(id)] |= kCached;
}

void KvBlockPool::RemoveFromCache(int32_t id) {
  INLAY_DCHECK(IsUsed(id) && IsCached(id));
  if (IsEvictable(id)) BecomeHeld(id);
  state_[static_cast<size_t>(id)] &= static_cast<uint8_t>(~kCached);
  Unref(id);
}

void KvBlockPool::Move(int32_t from, int32_t to) {
  INLAY_DCHECK(IsUsed(from) && RefCount(to) == 0 && from != to);
  const auto taken = std::find(free_.rbegin(), free_.rend(), to);
  INLAY_DCHECK(taken != free_.rend());
  *taken = from;
  std::swap(refs_[static_cast<size_t>(from)], refs_[static_cast<size_t>(to)]);
  std::swap(state_[static_cast<size_t>(from)], state_[static_cast<size_t>(to)]);
}

}  // namespace inlay
