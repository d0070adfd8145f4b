// KvLayout: where keys and values lie inside a KV block. A block holds
// `block_size` tokens of ALL layers in one contiguous run of bytes, so that
// copy-on-write, swapping and snapshots move one range. Knows no models.
//
//   block | layer 0: K [kv_heads][block_size][head_dim]  V
//   [kv_heads][block_size][head_dim] | layer 1: ... |
#ifndef INLAY_MEMORY_KV_KV_LAYOUT_H_
#define INLAY_MEMORY_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/dtype.h"

namespace inlay {

// The shape of one layer's cache. Layers may differ.
struct KvLayerShape {
  int num_kv_heads = 0;
  int head_dim = 0;
};

// Where a cache's blocks lie: in one range, or in extents of 2^extent_shift
// blocks each (storage.h), which come and go with the memory there is.
struct KvBase {
  KvBase() = default;
  KvBase(std::byte* range) : base(range) {}  // NOLINT: one range is a cache

  std::byte* Block(int64_t block, int64_t block_stride_bytes) const {
    if (extents == nullptr) return base + block * block_stride_bytes;
    const int64_t mask = (int64_t{1} << extent_shift) - 1;
    return extents[block >> extent_shift] + (block & mask) * block_stride_bytes;
  }
  bool empty() const { return base == nullptr && extents == nullptr; }

  std::byte* base = nullptr;            // of block 0; null with extents
  std::byte* const* extents = nullptr;  // not owned; null for what is absent
  int extent_shift = 0;
};

// One layer of the whole cache, as kernels see it. Element (block b, head h,
// slot t, dimension d) of K lies at
//   base.Block(b) + k_offset_bytes + RowBytes(dtype, ((h *
//   block_size + t) * head_dim + d)).
struct KvLayerView {
  KvBase base;
  int64_t block_stride_bytes = 0;
  int64_t k_offset_bytes = 0;
  int64_t v_offset_bytes = 0;
  DType dtype = DType::kF32;
  int block_size = 0;
  int num_kv_heads = 0;
  int head_dim = 0;

  std::byte* KeyRow(int64_t block, int head, int slot) const {
    return Row(k_offset_bytes, block, head, slot);
  }
  std::byte* ValueRow(int64_t block, int head, int slot) const {
    return Row(v_offset_bytes, block, head, slot);
  }

 private:
  std::byte* Row(int64_t offset, int64_t block, int head, int slot) const {
    const int64_t row = int64_t{head} * block_size + slot;
    return base.Block(block, block_stride_bytes) + offset +
           row * static_cast<int64_t>(
                     RowBytes(dtype, static_cast<size_t>(head_dim)));
  }
};

class KvLayout {
 public:
  KvLayout() = default;
  KvLayout(std::vector<KvLayerShape> layers, DType dtype, int block_size);

  int block_size() const { return block_size_; }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  DType dtype() const { return dtype_; }
  size_t block_bytes() const { return block_bytes_; }

  // The view of `layer` over the cache at `base`.
  KvLayerView LayerView(int layer, KvBase base) const;

 private:
  std::vector<KvLayerShape> layers_;
  std::vector<int64_t> layer_offsets_;  // of K; V follows it
  DType dtype_ = DType::kF32;
  int block_size_ = 0;
  size_t block_bytes_ = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_KV_LAYOUT_H_
