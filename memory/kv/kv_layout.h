// KvLayout: where keys and values lie inside a KV block. A block holds
// `block_size` tokens of ALL layers in one contiguous run of bytes, so that
// copy-on-write, swapping and snapshots move one range. Knows no models.
//
//   block | layer 0: K [kv_heads][block_size] rows  V the same | layer 1: ... |
//
// A row is the head_dim elements of one token and head, KvRowBytes() long, in
// one of six formats (multi-byte values as the machine has them):
//
//   f32, f16, bf16  | x0 | x1 | ... |
//   i8, f8_e4m3     | scale, f32 | c0 | c1 | ... | zeros to a multiple of 4 |
//                   x = c * scale; f8_e4m3 scales are powers of two
//   kv_q4           | group 0 | group 1 | ... |  of 32 elements, 20 bytes each
//     group         | scale, bf16 | least, bf16 | b0 | b1 | ... | b15 |
//                   x = c * scale + least; b[j] holds element j of the group
//                   in bits 0-3 and element j + 16 in bits 4-7; a short last
//                   group is filled with its last element
//
// Scales are NaN in a row that had something that is not finite: all of it
// reads as NaN. Codec: kernels/kv_write/kv_row.h.
#ifndef INLAY_MEMORY_KV_KV_LAYOUT_H_
#define INLAY_MEMORY_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/dtype.h"

namespace inlay {

inline constexpr int kKvQ4Group = 32;
inline constexpr int kKvScaleBytes = 4;  // ahead of i8 and f8_e4m3 codes

// Whether a cache can have this format.
constexpr bool IsKvFormat(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI8:
    case DType::kF8E4M3:
    case DType::kKvQ4:
      return true;
    default:
      return false;
  }
}

// Bytes of one row, a multiple of the alignment of what is in it. `dtype` must
// be a KV format.
constexpr size_t KvRowBytes(DType dtype, int head_dim) {
  const auto dim = static_cast<size_t>(head_dim);
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return 2 * dim;
    case DType::kI8:
    case DType::kF8E4M3:
      return kKvScaleBytes + (dim + 3) / 4 * 4;
    case DType::kKvQ4:
      return (dim + kKvQ4Group - 1) / kKvQ4Group * (4 + kKvQ4Group / 2);
    default:
      return 4 * dim;
  }
}

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

// One layer of the whole cache, as kernels see it. The row of block b, head h,
// slot t of K lies at
//   base.Block(b) + k_offset_bytes +
//   (h * block_size + t) * KvRowBytes(dtype, head_dim).
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
           row * static_cast<int64_t>(KvRowBytes(dtype, head_dim));
  }
};

class KvLayout {
 public:
  KvLayout() = default;
  KvLayout(std::vector<KvLayerShape> layers, DType dtype, int block_size);

  int block_size() const { return block_size_; }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  size_t num_groups() const { return 1; }
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
