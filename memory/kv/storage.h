// KvStorage: the memory behind the blocks of a KV cache, in extents that can be
// added and given back one by one: allocations of their own, or, where the
// device has such, pieces of one range of addresses. Owns the memory; knows no
// tokens, and not which blocks are in use.
#ifndef INLAY_MEMORY_KV_STORAGE_H_
#define INLAY_MEMORY_KV_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/device/device.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

// Blocks [e << shift, (e + 1) << shift) lie in extent e, each block_bytes long.
// Thread-compatible; while kernels run, no extent may be added or dropped.
class KvStorage {
 public:
  // `device` is not owned. block_bytes >= 1; extents have about
  // `target_extent_bytes`, in a power of two of blocks; at least what makes
  // them a multiple of the device's range_granularity().
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
  // A block for the host to read: where it lies, or a copy, valid until the
  // next call of these. Nothing that is queued may write it.
  absl::StatusOr<absl::Span<const std::byte>> Read(int32_t id);
  // Room for the host to make a block's bytes in, and then to put them there.
  absl::StatusOr<absl::Span<std::byte>> BeginWrite(int32_t id);
  absl::Status FinishWrite(int32_t id);
  // Valid until the next AddExtent().
  KvBase base() const {
    if (range_ != nullptr) return range_->base();
    KvBase base;
    base.extents = extents_.data();
    base.extent_shift = shift_;
    return base;
  }

 private:
  // What extent `index` is to lie in: a buffer, or mapped into the range.
  absl::StatusOr<Buffer> AddMemory(size_t index);
  // Makes staging_ and stream_.
  absl::Status Stage();

  Device* device_;
  size_t block_bytes_;
  int shift_ = 0;
  int32_t num_extents_ = 0;
  std::unique_ptr<AddressRange> range_;  // null: extents are buffers_
  // Of a block, for devices whose memory the host cannot read; made when it is
  // first asked for. A stream of its own: no step waits in it.
  Buffer staging_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::vector<std::byte*> extents_;  // null for what is absent
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_STORAGE_H_
