// The free list and the reference counts of KV blocks.
#include "memory/kv/block_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace inlay {

KvBlockPool::KvBlockPool(int32_t num_blocks) {
  INLAY_DCHECK(num_blocks >= 0);
  refs_.assign(static_cast<size_t>(num_blocks), 0);
  free_.reserve(refs_.size());
  for (int32_t id = num_blocks - 1; id >= 0; --id) free_.push_back(id);
}

absl::StatusOr<std::vector<int32_t>> KvBlockPool::Allocate(int64_t count) {
  if (count < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("KV blocks to allocate: got ", count, ", must be >= 0"));
  if (count > num_free()) {
    return absl::ResourceExhaustedError(absl::StrCat("KV blocks: ", count,
                                                     " wanted, ", num_free(),
                                                     " free of ", num_total()));
  }
  if (count > 0 && fault_ && fault_())
    return absl::ResourceExhaustedError("KV blocks: injected fault");
  std::vector<int32_t> ids(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - ids.size());
  for (int32_t id : ids) {
    INLAY_DCHECK(RefCount(id) == 0);
    refs_[static_cast<size_t>(id)] = 1;
  }
  peak_used_ = std::max(peak_used_, num_used());
  return ids;
}

void KvBlockPool::Unref(int32_t id) {
  INLAY_DCHECK(IsUsed(id));
  if (--refs_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

}  // namespace inlay
