// Groups of layers, the sizes of their blocks, and offsets in them.
#include "memory/kv/kv_layout.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

namespace inlay {
namespace {

// Layers start on cache lines, so that vector loads of a row never straddle two
// layers' lines.
constexpr size_t kLayerAlignment = 64;

// Beyond it, padding costs less than what a sequence leaves of its last block.
constexpr int kMaxBlockSize = 8192;
// Larger blocks are tried as long as a group has more padding than this share
// of a block (1 / 10): coarse blocks cost what sequences leave of their last
// ones, padding costs every block.
constexpr size_t kPaddingShare = 10;
constexpr int kMostMultiples = 4;

size_t PlaneBytes(const KvLayerShape& shape, DType dtype, int block_size) {
  return static_cast<size_t>(shape.num_kv_heads) *
         static_cast<size_t>(block_size / shape.row_tokens) *
         KvRowBytes(dtype, shape.head_dim);
}

size_t Align(size_t bytes) {
  return (bytes + kLayerAlignment - 1) / kLayerAlignment * kLayerAlignment;
}

size_t LayerBytes(const KvLayerShape& shape, DType dtype, int block_size) {
  return Align(static_cast<size_t>(shape.num_planes()) *
               PlaneBytes(shape, dtype, block_size));
}

// Where the layer begins, at `used` bytes of a block or behind.
size_t LayerBegin(const KvLayerShape& shape, DType dtype, size_t used) {
  if (!shape.counts_rows) return used;
  const size_t unit =
      std::lcm(KvRowBytes(dtype, shape.head_dim), kLayerAlignment);
  return (used + unit - 1) / unit * unit;
}

int64_t Reach(int64_t window) {
  return window == 0 ? std::numeric_limits<int64_t>::max() : window;
}

}  // namespace

KvLayout::KvLayout(std::vector<KvLayerShape> layers, DType dtype,
                   int block_size, absl::Span<const size_t> states)
    : layers_(std::move(layers)), dtype_(dtype) {
  size_t bytes = 0;
  for (const size_t state : states) bytes += Align(state);
  FormGroups(block_size, states.empty() ? kMaxKvGroups : kMaxKvGroups - 1);
  // Blocks of equal bytes: where a state is large, more tokens share one.
  int tokens = block_size;
  while (tokens < kMaxBlockSize && !layers_.empty() &&
         BytesFor(0, tokens) < bytes) {
    tokens += block_size;
  }
  for (KvGroup& group : groups_) group.block_size = tokens;
  SizeBlocks(tokens);
  PlaceLayers();
  if (!states.empty()) AddStates(states, block_size);
}

// A state is kept where a block's tokens end: rarely enough that states take no
// more than the KV beside them does, or than so many bytes a token, but often
// enough that not much is computed again where only part of a prompt is shared.
void KvLayout::AddStates(absl::Span<const size_t> states, int block_size) {
  constexpr size_t kBytesAToken = 64 << 10;
  constexpr size_t kFewestTokens = 64, kMostTokens = 1024;
  size_t used = 0;
  for (const size_t state : states) {
    state_bytes_.push_back(state);
    state_offsets_.push_back(static_cast<int64_t>(used));
    used += Align(state);
  }
  size_t tokens = used / kBytesAToken;
  if (layers_.empty()) {
    groups_.clear();
    used_bytes_.clear();
  } else {
    block_size = groups_.front().block_size;
    tokens = std::max(tokens, static_cast<size_t>(block_size));
  }
  tokens = std::bit_ceil(std::clamp(tokens, kFewestTokens, kMostTokens));
  groups_.push_back({static_cast<int32_t>(tokens), 1, true});
  used_bytes_.push_back(used);
  block_bytes_ = std::max(block_bytes_, used);
}

void KvLayout::PlaceLayers() {
  used_bytes_.assign(groups_.size(), 0);
  layer_offsets_.reserve(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    size_t& used = used_bytes_[group_of_[i]];
    used = LayerBegin(layers_[i], dtype_, used);
    layer_offsets_.push_back(static_cast<int64_t>(used));
    used += LayerBytes(layers_[i], dtype_, groups_[group_of_[i]].block_size);
  }
  block_bytes_ = *std::max_element(used_bytes_.begin(), used_bytes_.end());
}

void KvLayout::FormGroups(int block_size, size_t most) {
  std::vector<int64_t> windows;
  for (const KvLayerShape& layer : layers_) {
    if (std::find(windows.begin(), windows.end(), layer.window) ==
        windows.end())
      windows.push_back(layer.window);
  }
  if (windows.empty()) windows.push_back(0);
  std::sort(windows.begin(), windows.end(),
            [](int64_t a, int64_t b) { return Reach(a) > Reach(b); });
  groups_.clear();
  for (size_t i = 0; i < std::min(windows.size(), most); ++i)
    groups_.push_back({block_size, windows[i]});
  for (const KvLayerShape& layer : layers_) {
    const auto found = std::find(windows.begin(), windows.end(), layer.window);
    group_of_.push_back(std::min(static_cast<size_t>(found - windows.begin()),
                                 groups_.size() - 1));
  }
}

size_t KvLayout::BytesFor(size_t group, int block_size) const {
  size_t bytes = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (group_of_[i] != group) continue;
    bytes = LayerBegin(layers_[i], dtype_, bytes) +
            LayerBytes(layers_[i], dtype_, block_size);
  }
  return bytes;
}

int KvLayout::UnitOf(size_t group, int block_size) const {
  int unit = block_size;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (group_of_[i] == group) unit = std::lcm(unit, layers_[i].row_tokens);
  }
  return unit;
}

void KvLayout::SizeBlocks(int block_size) {
  std::vector<size_t> least(groups_.size());
  std::vector<int> units(groups_.size());
  for (size_t i = 0; i < least.size(); ++i) {
    units[i] = UnitOf(i, block_size);
    least[i] = BytesFor(i, units[i]);
    groups_[i].block_size = units[i];
  }
  if (groups_.size() == 1) return;
  const auto heaviest = static_cast<size_t>(
      std::max_element(least.begin(), least.end()) - least.begin());
  // Padding of the group that has most, in bytes, and the block it is of.
  size_t best_padding = 1, best_bytes = 0;
  for (int multiple = 1; multiple <= kMostMultiples; ++multiple) {
    const size_t bytes = BytesFor(heaviest, units[heaviest] * multiple);
    size_t padding = 0;
    KvGroups sized = groups_;
    for (size_t i = 0; i < least.size(); ++i) {
      // At least; alignment weighs less in larger blocks.
      const int most = std::max(units[i], kMaxBlockSize) / units[i];
      auto fit = static_cast<int>(std::min<size_t>(bytes / least[i], most));
      while (fit < most && BytesFor(i, units[i] * (fit + 1)) <= bytes) ++fit;
      sized[i].block_size = units[i] * fit;
      padding = std::max(padding, bytes - BytesFor(i, sized[i].block_size));
    }
    if (best_bytes == 0 || padding * best_bytes < best_padding * bytes) {
      best_padding = padding;
      best_bytes = bytes;
      groups_ = sized;
    }
    if (best_padding * kPaddingShare <= best_bytes) return;
  }
}

int KvLayout::max_block_size() const {
  int most = 0;
  for (const KvGroup& group : groups_) most = std::max(most, group.block_size);
  return most;
}

size_t KvLayout::bytes_per_token() const {
  size_t bytes = 0;
  for (const KvGroup& group : groups_) {
    if (group.is_state) continue;
    bytes += block_bytes_ / static_cast<size_t>(std::max(group.block_size, 1));
  }
  return bytes;
}

KvLayerView KvLayout::LayerView(int layer, KvBase base) const {
  const KvLayerShape& shape = layers_[static_cast<size_t>(layer)];
  const int block_size = groups_[group_of(layer)].block_size;
  KvLayerView view;
  view.base = base;
  view.block_stride_bytes = static_cast<int64_t>(block_bytes_);
  view.k_offset_bytes = layer_offsets_[static_cast<size_t>(layer)];
  view.v_offset_bytes = view.k_offset_bytes;
  if (shape.value_dim == 0) {
    view.v_offset_bytes +=
        static_cast<int64_t>(PlaneBytes(shape, dtype_, block_size));
  }
  view.dtype = dtype_;
  view.block_size = block_size / shape.row_tokens;
  view.num_kv_heads = shape.num_kv_heads;
  view.head_dim = shape.head_dim;
  view.value_dim = shape.value_dim;
  return view;
}

KvStateView KvLayout::StateView(int layer, KvBase base) const {
  KvStateView view;
  view.base = base;
  view.block_stride_bytes = static_cast<int64_t>(block_bytes_);
  view.offset_bytes = state_offsets_[static_cast<size_t>(layer)];
  view.block_size = groups_.back().block_size;
  return view;
}

}  // namespace inlay
