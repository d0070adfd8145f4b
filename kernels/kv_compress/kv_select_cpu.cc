// kv_select on CPU, the only row: copies of slots.
#include <algorithm>

#include "kernels/kv_compress/kv_select.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// Of a layer's slots, by number.
class Slots {
 public:
  explicit Slots(const KvLayerView& layer)
      : size_(layer.block_size),
        rows_(layer.InRows().block_size),
        first_(layer.first_row()) {}

  int32_t OfKey(const int32_t* blocks, int64_t key) const {
    return At(blocks[key / size_], static_cast<int32_t>(key % size_));
  }
  int32_t OfSlot(int32_t slot) const { return At(slot / size_, slot % size_); }

 private:
  int32_t At(int32_t block, int32_t row) const {
    return block * rows_ + first_ + row;
  }

  int32_t size_;
  int32_t rows_;
  int32_t first_;
};

}  // namespace

absl::Status RunKvSelectCpu(const KvSelectDesc& desc,
                            const KvSelectParams& params, Stream& stream) {
  const Slots near(params.near);
  const Slots far(params.far);
  for (size_t s = 0; s < params.near_sequences.size(); ++s) {
    const AttentionSequence& sequence = params.near_sequences[s];
    const int32_t* far_blocks = params.far_sequences[s].blocks;
    const auto select = [&](int64_t index) {
      const int64_t row = sequence.q_begin + index;
      const int64_t seen =
          int64_t{sequence.kv_len} - sequence.q_len + index + 1;
      int32_t* to = params.selection + row * desc.selects();
      const int64_t begin = std::max<int64_t>(0, seen - desc.window);
      for (int64_t key = begin; key < seen; ++key) {
        *to++ = near.OfKey(sequence.blocks, key);
      }
      const int64_t count =
          std::min<int64_t>(seen / desc.row_tokens, desc.most);
      for (int64_t key = 0; key < count; ++key) {
        *to++ = desc.is_chosen
                    ? far.OfSlot(params.chosen[row * desc.most + key])
                    : far.OfKey(far_blocks, key);
      }
    };
    stream.thread_pool()->ParallelFor(sequence.q_len, 8,
                                      [&](int64_t begin, int64_t end) {
                                        for (int64_t i = begin; i < end; ++i)
                                          select(i);
                                      });
  }
  return absl::OkStatus();
}

}  // namespace inlay
