// Sharing and releasing the blocks of one sequence.
#include "memory/kv/block_table.h"

#include <algorithm>
#include <utility>

namespace inlay {

KvBlockTable::KvBlockTable(KvBlockPool* pool, int32_t block_size, bool is_state)
    : pool_(pool), block_size_(block_size), is_state_(is_state) {
  INLAY_DCHECK(pool != nullptr && block_size >= 1);
}

KvBlockTable::KvBlockTable(KvBlockTable&& other) noexcept
    : pool_(other.pool_),
      block_size_(other.block_size_),
      is_state_(other.is_state_),
      num_tokens_(std::exchange(other.num_tokens_, 0)),
      num_dropped_(std::exchange(other.num_dropped_, 0)),
      blocks_(std::exchange(other.blocks_, {})) {}

KvBlockTable& KvBlockTable::operator=(KvBlockTable&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  pool_ = other.pool_;
  block_size_ = other.block_size_;
  is_state_ = other.is_state_;
  num_tokens_ = std::exchange(other.num_tokens_, 0);
  num_dropped_ = std::exchange(other.num_dropped_, 0);
  blocks_ = std::exchange(other.blocks_, {});
  return *this;
}

KvBlockTable KvBlockTable::Fork() const {
  KvBlockTable fork(pool_, block_size_, is_state_);
  fork.blocks_ = blocks_;  // may throw: before any reference is taken
  fork.num_tokens_ = num_tokens_;
  fork.num_dropped_ = num_dropped_;
  for (int32_t id : blocks_) {
    if (id != kNoBlock) pool_->Ref(id);
  }
  return fork;
}

void KvBlockTable::Share(absl::Span<const int32_t> blocks, int64_t num_tokens) {
  INLAY_DCHECK(blocks_.empty() && static_cast<int64_t>(blocks.size()) ==
                                      KvBlocksFor(num_tokens, block_size_));
  blocks_.assign(blocks.begin(), blocks.end());
  num_tokens_ = num_tokens;
  num_dropped_ = 0;
  while (num_dropped_ < blocks_.size() && blocks_[num_dropped_] == kNoBlock)
    ++num_dropped_;
  for (size_t i = num_dropped_; i < blocks_.size(); ++i) {
    if (blocks_[i] != kNoBlock) pool_->Ref(blocks_[i]);
  }
}

void KvBlockTable::Put(size_t index, int32_t id) {
  INLAY_DCHECK(blocks_[index] == kNoBlock && pool_->IsUsed(id));
  blocks_[index] = id;
  num_dropped_ = std::min(num_dropped_, index);
}

void KvBlockTable::Replace(size_t index, int32_t id) {
  pool_->Ref(id);
  pool_->Unref(blocks_[index]);
  blocks_[index] = id;
}

void KvBlockTable::DropBefore(int64_t position) {
  const auto end = static_cast<size_t>(
      std::clamp<int64_t>(std::min(position, num_tokens_) / block_size_, 0,
                          static_cast<int64_t>(blocks_.size())));
  for (; num_dropped_ < end; ++num_dropped_) {
    if (blocks_[num_dropped_] == kNoBlock) continue;
    pool_->Unref(blocks_[num_dropped_]);
    blocks_[num_dropped_] = kNoBlock;
  }
}

void KvBlockTable::Truncate(int64_t num_tokens) {
  INLAY_DCHECK(num_tokens >= 0);
  if (num_tokens >= num_tokens_) return;
  const auto keep = static_cast<size_t>(KvBlocksFor(num_tokens, block_size_));
  // From the back, so that the free list hands the blocks out again in sequence
  // order.
  while (blocks_.size() > keep) {
    if (blocks_.back() != kNoBlock) pool_->Unref(blocks_.back());
    blocks_.pop_back();
  }
  num_tokens_ = num_tokens;
  num_dropped_ = std::min(num_dropped_, blocks_.size());
}

bool KvBlockTable::AppendCopies() const {
  if (num_tokens_ % block_size_ == 0) return false;
  return is_state_ || blocks_.back() == kNoBlock ||
         pool_->RefCount(blocks_.back()) > 1;
}

int64_t KvBlockTable::BlocksNeeded(int64_t extra_tokens) const {
  INLAY_DCHECK(extra_tokens >= 0);
  if (extra_tokens == 0) return 0;
  const auto held = static_cast<int64_t>(blocks_.size());
  return KvBlocksFor(num_tokens_ + extra_tokens, block_size_) - held +
         (AppendCopies() ? 1 : 0);
}

}  // namespace inlay
