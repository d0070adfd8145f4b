// Extents of a KV cache.
#include "memory/kv/storage.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

KvStorage::KvStorage(Device* device, size_t block_bytes,
                     size_t target_extent_bytes)
    : device_(device), block_bytes_(block_bytes) {
  INLAY_DCHECK(device != nullptr && block_bytes >= 1);
  constexpr int kMaxShift = 20;
  while (shift_ < kMaxShift &&
         (block_bytes_ << (shift_ + 1)) <= target_extent_bytes) {
    ++shift_;
  }
}

absl::StatusOr<int32_t> KvStorage::AddExtent() {
  INLAY_ASSIGN_OR_RETURN(Buffer buffer,
                         device_->Allocate(extent_bytes(), MemoryClass::kKv));
  const auto absent = std::find(extents_.begin(), extents_.end(), nullptr);
  const auto index = static_cast<size_t>(absent - extents_.begin());
  if (absent == extents_.end()) {
    extents_.reserve(index + 1);
    buffers_.emplace_back();
    extents_.push_back(nullptr);
  }
  extents_[index] = buffer.data();
  buffers_[index] = std::move(buffer);
  ++num_extents_;
  return static_cast<int32_t>(index);
}

void KvStorage::DropExtent(int32_t extent) {
  INLAY_DCHECK(HasExtent(extent));
  buffers_[static_cast<size_t>(extent)] = Buffer();
  extents_[static_cast<size_t>(extent)] = nullptr;
  --num_extents_;
}

}  // namespace inlay
