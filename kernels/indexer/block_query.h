// What CPU rows of block_indexer share: which blocks a query has, which of them
// compete, and the writing of its selection.
#ifndef INLAY_KERNELS_INDEXER_BLOCK_QUERY_H_
#define INLAY_KERNELS_INDEXER_BLOCK_QUERY_H_

#include <cstdint>

#include "kernels/indexer/block_indexer.h"
#include "kernels/indexer/top_keys.h"

namespace inlay {

// Query `index` of `sequence`.
struct BlockQuery {
  BlockQuery(const BlockIndexerDesc& of_desc,
             const BlockIndexerParams& of_params,
             const AttentionSequence& sequence, int64_t index)
      : desc(of_desc),
        params(of_params),
        blocks(sequence.blocks),
        row(sequence.q_begin + index),
        units(params.kv.block_size / desc.block),
        count((int64_t{sequence.kv_len} - sequence.q_len + index) / desc.block +
              1) {}

  bool selects_all() const { return count <= desc.selects; }
  // Blocks [0, end()) compete where not all are selected, for so many places.
  // All their keys are before the query.
  int64_t end() const { return count - desc.neighbours; }
  int places() const { return desc.selects - desc.neighbours; }
  const std::byte* Key(int64_t position) const {
    const int size = params.kv.block_size;
    return params.kv.KeyRow(blocks[position / size], 0,
                            static_cast<int>(position % size));
  }
  int32_t* Selection(int head) const {
    return params.selection + (row * desc.num_heads + head) * desc.selects;
  }
  void SelectAllBlocks(int head) const {
    SelectAll(blocks, static_cast<int>(units), count, Selection(head));
  }
  // `top`, of places(), has those that won; unused where there are none.
  void Select(int head, TopKeys& top) const {
    int32_t* const selection = Selection(head);
    if (places() > 0) top.Take(blocks, static_cast<int>(units), selection);
    for (int i = 0; i < desc.neighbours; ++i) {
      const int64_t block = count - desc.neighbours + i;
      selection[places() + i] =
          static_cast<int32_t>(blocks[block / units] * units + block % units);
    }
  }

  const BlockIndexerDesc& desc;
  const BlockIndexerParams& params;
  const int32_t* blocks;
  int64_t row;    // of q
  int64_t units;  // blocks in a block of the cache
  int64_t count;  // of the query's blocks
};

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_BLOCK_QUERY_H_
