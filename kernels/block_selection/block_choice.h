// What CPU rows of block_selection share: which blocks a query has, which of
// them compete, and the writing of its selection.
#ifndef INLAY_KERNELS_BLOCK_SELECTION_BLOCK_CHOICE_H_
#define INLAY_KERNELS_BLOCK_SELECTION_BLOCK_CHOICE_H_

#include <cstdint>

#include "kernels/block_selection/block_selection.h"
#include "kernels/indexer/top_keys.h"

namespace inlay {

// Query `index` of `sequence` and KV head `head`.
struct BlockChoice {
  BlockChoice(const BlockSelectionDesc& desc,
              const BlockSelectionParams& params,
              const AttentionSequence& sequence, int64_t index, int head)
      : row(sequence.q_begin + index),
        blocks(sequence.blocks),
        units(params.summaries.block_size / kSelectBlock),
        count((int64_t{sequence.kv_len} - sequence.q_len + index) /
                  kSelectBlock +
              1),
        num_blocks(desc.num_blocks),
        selection(params.selection +
                  (row * desc.num_kv_heads + head) * desc.num_blocks) {}

  bool selects_all() const { return count <= num_blocks; }
  // Blocks [kSinkBlocks, end()) compete where not all are selected.
  int64_t end() const { return count - kLocalBlocks; }
  // Of block `i` of the sequence, in the cache.
  int32_t Place(int64_t i) const {
    return static_cast<int32_t>(blocks[i / units] * units + i % units);
  }
  const std::byte* Summary(const KvLayerView& summaries, int head,
                           int64_t i) const {
    return summaries.KeyRow(blocks[i / units], head,
                            static_cast<int>(i % units) * kSelectBlock);
  }
  void SelectAllBlocks() const {
    SelectAll(blocks, static_cast<int>(units), count, selection);
  }
  // `top` has those that won.
  void Select(TopKeys& top) const {
    for (int i = 0; i < kSinkBlocks; ++i) selection[i] = Place(i);
    top.Take(blocks, static_cast<int>(units), selection + kSinkBlocks);
    for (int i = 1; i <= kLocalBlocks; ++i) {
      selection[num_blocks - i] = Place(count - i);
    }
  }

  int64_t row;  // of q
  const int32_t* blocks;
  int64_t units;  // blocks in a block of the cache
  int64_t count;  // of the query's blocks
  int num_blocks;
  int32_t* selection;  // the row
};

}  // namespace inlay

#endif  // INLAY_KERNELS_BLOCK_SELECTION_BLOCK_CHOICE_H_
