#include "memory/kv/kv_layout.h"

#include <utility>

namespace inlay {
namespace {

// Layers start on cache lines, so that vector loads of a row never straddle two
// layers' lines.
constexpr size_t kLayerAlignment = 64;

size_t PlaneBytes(const KvLayerShape& shape, DType dtype, int block_size) {
  return static_cast<size_t>(shape.num_kv_heads) *
         static_cast<size_t>(block_size) * KvRowBytes(dtype, shape.head_dim);
}

}  // namespace

KvLayout::KvLayout(std::vector<KvLayerShape> layers, DType dtype,
                   int block_size)
    : layers_(std::move(layers)), dtype_(dtype), block_size_(block_size) {
  layer_offsets_.reserve(layers_.size());
  for (const KvLayerShape& shape : layers_) {
    layer_offsets_.push_back(static_cast<int64_t>(block_bytes_));
    block_bytes_ += 2 * PlaneBytes(shape, dtype, block_size);
    block_bytes_ = (block_bytes_ + kLayerAlignment - 1) / kLayerAlignment *
                   kLayerAlignment;
  }
}

KvLayerView KvLayout::LayerView(int layer, KvBase base) const {
  const KvLayerShape& shape = layers_[static_cast<size_t>(layer)];
  KvLayerView view;
  view.base = base;
  view.block_stride_bytes = static_cast<int64_t>(block_bytes_);
  view.k_offset_bytes = layer_offsets_[static_cast<size_t>(layer)];
  view.v_offset_bytes = view.k_offset_bytes + static_cast<int64_t>(PlaneBytes(
                                                  shape, dtype_, block_size_));
  view.dtype = dtype_;
  view.block_size = block_size_;
  view.num_kv_heads = shape.num_kv_heads;
  view.head_dim = shape.head_dim;
  return view;
}

}  // namespace inlay
