// KvLayout: where keys and values lie inside a KV block. A block holds
// `block_size` tokens of ALL layers of one group (kv_group.h) in one contiguous
// run of bytes, so that copy-on-write, swapping and snapshots move one range.
// Blocks of all groups have the same bytes. Knows no models.
//
//   block | first layer: K [kv_heads][block_size] rows  V the same |
//         | second layer: ... | padding, where other groups need more |
//
// A row is the head_dim elements of one token and head (kv_format.h). Layers
// whose values are a part of their keys' rows have no V. A layer whose rows are
// of several tokens each (KvLayerShape::row_tokens) has fewer rows a block than
// the block has tokens.
#ifndef INLAY_MEMORY_KV_KV_LAYOUT_H_
#define INLAY_MEMORY_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "memory/dtype.h"
#include "memory/kv/kv_format.h"
#include "memory/kv/kv_group.h"

namespace inlay {

// The shape of one layer's cache. Layers may differ.
struct KvLayerShape {
  int num_kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // as KvGroup has it
  // > 0: values are the first so many elements of the keys' rows (latent
  // attention, arXiv:2405.04434); 0: they have rows of their own, of head_dim.
  int value_dim = 0;
  // > 1: a row is of so many tokens, the last of which is at a position p with
  // p + 1 a multiple of it; it is there once that token is. A power of two;
  // blocks of the layer's group hold a multiple of it.
  int row_tokens = 1;
  // The layer begins a whole number of its rows behind its block's first byte
  // (KvLayerView::InRows).
  bool counts_rows = false;

  // Rows of each token and head.
  int num_planes() const { return value_dim > 0 ? 1 : 2; }
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
// Where rows are of several tokens, block_size counts rows, and t is that of
// the row: block tables are those of the group.
struct KvLayerView {
  KvBase base;
  int64_t block_stride_bytes = 0;
  int64_t k_offset_bytes = 0;
  int64_t v_offset_bytes = 0;
  DType dtype = DType::kF32;
  int block_size = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;  // as KvLayerShape has it; > 0: V lies where K does

  // Of layers that count rows and are of one head, dtype and head_dim, all
  // rows of a block seen as one layer's: rows of several layers by one number.
  // Slot t of this layer is slot first_row() + t there.
  KvLayerView InRows() const {
    KvLayerView rows = *this;
    rows.k_offset_bytes = rows.v_offset_bytes = 0;
    rows.block_size = static_cast<int>(block_stride_bytes / row_bytes()) + 1;
    return rows;
  }
  int first_row() const {
    return static_cast<int>(k_offset_bytes / row_bytes());
  }
  int64_t row_bytes() const {
    return static_cast<int64_t>(KvRowBytes(dtype, head_dim));
  }

  std::byte* KeyRow(int64_t block, int head, int slot) const {
    return Row(k_offset_bytes, block, head, slot);
  }
  std::byte* ValueRow(int64_t block, int head, int slot) const {
    return Row(v_offset_bytes, block, head, slot);
  }

 private:
  std::byte* Row(int64_t offset, int64_t block, int head, int slot) const {
    const int64_t row = int64_t{head} * block_size + slot;
    return base.Block(block, block_stride_bytes) + offset + row * row_bytes();
  }
};

// The state of one recurrent layer inside a block of the states' group.
struct KvStateView {
  KvBase base;
  int64_t block_stride_bytes = 0;
  int64_t offset_bytes = 0;
  int block_size = 0;

  std::byte* State(int64_t block) const {
    return base.Block(block, block_stride_bytes) + offset_bytes;
  }
};

// Layers of equal windows are a group; where there are more than kMaxKvGroups,
// those of the shortest windows are one that keeps the longest of them. All
// states are a group, the last.
class KvLayout {
 public:
  KvLayout() = default;
  // block_size: of the group that needs the most bytes a token, or up to four
  // times that where it saves padding. Other groups have the multiple of
  // block_size that fits beside it; those with rows of several tokens a
  // multiple of these too. `states`: bytes of each recurrent layer's
  // state; blocks are large enough for all of them.
  KvLayout(std::vector<KvLayerShape> layers, DType dtype, int block_size,
           absl::Span<const size_t> states = {});

  // The group that reaches furthest back first; one where there are no layers.
  absl::Span<const KvGroup> groups() const { return groups_; }
  size_t num_groups() const { return groups_.size(); }
  size_t group_of(int layer) const {
    return group_of_[static_cast<size_t>(layer)];
  }
  // Tokens a block of the first group.
  int block_size() const { return groups_.front().block_size; }
  int max_block_size() const;
  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_states() const { return static_cast<int>(state_bytes_.size()); }
  bool has_states() const { return !state_bytes_.empty(); }
  // The states' group.
  size_t state_group() const { return groups_.size() - 1; }
  size_t state_bytes(int layer) const {
    return state_bytes_[static_cast<size_t>(layer)];
  }
  DType dtype() const { return dtype_; }
  // Of a block of any group; of these, what `group` uses; the rest is padding.
  size_t block_bytes() const { return block_bytes_; }
  size_t used_bytes(size_t group) const { return used_bytes_[group]; }
  // What one more token takes while no window has passed any, without states.
  size_t bytes_per_token() const;

  int row_tokens(int layer) const {
    return layers_[static_cast<size_t>(layer)].row_tokens;
  }
  // The view of `layer` over the cache at `base`.
  KvLayerView LayerView(int layer, KvBase base) const;
  // The same of recurrent layer `layer`.
  KvStateView StateView(int layer, KvBase base) const;

 private:
  void FormGroups(int block_size, size_t most);
  void PlaceLayers();
  void AddStates(absl::Span<const size_t> states, int block_size);
  size_t BytesFor(size_t group, int block_size) const;
  // What the group's blocks are a multiple of.
  int UnitOf(size_t group, int block_size) const;
  void SizeBlocks(int block_size);

  std::vector<KvLayerShape> layers_;
  std::vector<size_t> group_of_;        // by layer
  std::vector<int64_t> layer_offsets_;  // of K; V follows it
  std::vector<size_t> state_bytes_;
  std::vector<int64_t> state_offsets_;
  DType dtype_ = DType::kF32;
  KvGroups groups_ = {KvGroup{0, 0}};
  absl::InlinedVector<size_t, 2> used_bytes_ = {0};  // by group
  size_t block_bytes_ = 0;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_KV_KV_LAYOUT_H_
