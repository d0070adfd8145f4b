// Taking blocks for the next tokens of a table, and handing them over or back.
#include "memory/kv/reservation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace inlay {

absl::StatusOr<KvReservation> KvReservation::Make(KvBlockTable* table,
                                                  int64_t num_tokens) {
  INLAY_DCHECK(table != nullptr);
  KvReservation reservation(table, num_tokens);
  INLAY_RETURN_IF_ERROR(reservation.Fill());
  return reservation;
}

absl::Status KvReservation::Fill() {
  KvBlockPool* pool = table_->pool_;
  if (num_tokens_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens to reserve: got ", num_tokens_, ", must be >= 0"));
  }
  // More than the whole pool: said here, before sums of it could overflow.
  if (num_tokens_ > int64_t{pool->num_total()} * table_->block_size_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "KV for ", num_tokens_, " more tokens wanted, ", pool->num_total(),
        " blocks of ", table_->block_size_, " tokens in all"));
  }
  const bool copies = num_tokens_ > 0 && table_->AppendCopies();
  const int64_t needed = table_->BlocksNeeded(num_tokens_);
  if (needed == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(new_blocks_, pool->Allocate(needed));
  if (copies) {
    copy_ = KvBlockCopy{table_->blocks_.back(), new_blocks_.back()};
    new_blocks_.pop_back();
  }
  // Room now, so that Commit() cannot fail; doubling keeps appends amortised.
  const size_t size = table_->blocks_.size() + new_blocks_.size();
  if (table_->blocks_.capacity() < size)
    table_->blocks_.reserve(std::max(size, 2 * table_->blocks_.capacity()));
  return absl::OkStatus();
}

KvReservation::KvReservation(KvReservation&& other) noexcept
    : table_(other.table_),
      num_tokens_(std::exchange(other.num_tokens_, 0)),
      copy_(std::exchange(other.copy_, std::nullopt)),
      new_blocks_(std::exchange(other.new_blocks_, {})) {}

KvReservation& KvReservation::operator=(KvReservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  table_ = other.table_;
  num_tokens_ = std::exchange(other.num_tokens_, 0);
  copy_ = std::exchange(other.copy_, std::nullopt);
  new_blocks_ = std::exchange(other.new_blocks_, {});
  return *this;
}

int64_t KvReservation::num_blocks() const {
  return static_cast<int64_t>(table_->blocks_.size() + new_blocks_.size());
}

int32_t KvReservation::block(int64_t index) const {
  INLAY_DCHECK(index >= 0 && index < num_blocks());
  const auto i = static_cast<size_t>(index);
  const size_t held = table_->blocks_.size();
  if (i >= held) return new_blocks_[i - held];
  return copy_.has_value() && i + 1 == held ? copy_->dst : table_->blocks_[i];
}

void KvReservation::CopyBlocksTo(absl::Span<int32_t> out) const {
  INLAY_DCHECK(static_cast<int64_t>(out.size()) <= num_blocks());
  const std::vector<int32_t>& held = table_->blocks_;
  const size_t from_held = std::min(out.size(), held.size());
  std::copy_n(held.begin(), from_held, out.begin());
  std::copy_n(new_blocks_.begin(), out.size() - from_held,
              out.begin() + from_held);
  if (copy_.has_value() && from_held == held.size())
    out[held.size() - 1] = copy_->dst;
}

void KvReservation::Commit(int64_t tokens) {
  INLAY_DCHECK(tokens >= 0 && tokens <= num_tokens_);
  if (tokens > 0) {
    std::vector<int32_t>& held = table_->blocks_;
    if (copy_.has_value()) {
      INLAY_DCHECK(held.back() == copy_->src);
      table_->pool_->Unref(copy_->src);
      held.back() = copy_->dst;
      copy_.reset();
    }
    const auto grown = static_cast<size_t>(
        KvBlocksFor(table_->num_tokens_ + tokens, table_->block_size_));
    const auto taken = static_cast<std::ptrdiff_t>(grown - held.size());
    INLAY_DCHECK(taken >= 0 &&
                 taken <= static_cast<std::ptrdiff_t>(new_blocks_.size()));
    held.insert(held.end(), new_blocks_.begin(), new_blocks_.begin() + taken);
    new_blocks_.erase(new_blocks_.begin(), new_blocks_.begin() + taken);
    table_->num_tokens_ += tokens;
  }
  Release();
}

void KvReservation::Release() {
  if (copy_.has_value()) table_->pool_->Unref(copy_->dst);
  copy_.reset();
  for (auto id = new_blocks_.rbegin(); id != new_blocks_.rend(); ++id)
    table_->pool_->Unref(*id);
  new_blocks_.clear();
  num_tokens_ = 0;
}

}  // namespace inlay
