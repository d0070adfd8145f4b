// KvStorage: the memory behind the blocks of a KV cache, in extents that can be
// added and given back one by one. Owns the memory; knows no tokens, and not
// which blocks are in use.
#ifndef INLAY_MEMORY_KV_STORAGE_H_
#define INLAY_MEMORY_KV_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "memory/device/device.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

// Blocks [e << shift, (e + 1) << shift) lie in extent e, each block_bytes long.
// Thread-compatible; while kernels run, no extent may be added or dropped.
class KvStorage {
 public:
  // `device` is not owned. block_bytes >= 1; extents have about
  // `target_extent_bytes`, in a power of two of blocks.
  KvStorage(Device* device, size_t block_bytes, size_t target_extent_bytes);

  // Allocates one more extent: its index, that of an absent one if there is
  // any. The device's error when it has no room.
  absl::StatusOr<int32_t> AddExtent();
  // Gives the extent's memory back to the device.
  void DropExtent(int32_t extent);

  bool HasExtent(int32_t extent) const {
    return extents_[static_cast<size_t>(extent)] != nullptr;
  }
  // Extents are below it.
  int32_t end_extent() const { return static_cast<int32_t>(extents_.size()); }
  int32_t num_extents() const { return num_extents_; }
  int32_t blocks_per_extent() const { return int32_t{1} << shift_; }
  size_t extent_bytes() const { return block_bytes_ << shift_; }
  size_t block_bytes() const { return block_bytes_; }

  std::byte* Block(int32_t id) const {
    return base().Block(id, static_cast<int64_t>(block_bytes_));
  }
  // Valid until the next AddExtent().
  KvBase base() const {
    KvBase base;
    base.extents = extents_.data();
    base.extent_shift = shift_;
    return base;
  }

 private:
  Device* device_;
  size_t block_bytes_;
  int shift_ = 0;
  int32_t num_extents_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::byte*> extents_;  // data of buffers_
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_STORAGE_H_
