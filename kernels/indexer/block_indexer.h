// block_indexer: which blocks of keys each query of sparse attention sees,
// where the network was trained for it. A small attention of its own scores
// every key, a block is worth what the best of its keys is, and the best blocks
// are selected, by each head for itself. Source: MiniMax-M3 (transformers'
// MiniMaxM3VLIndexer). The score of the query at p and the block b before its
// own is, for head h,
//
//   the most over keys k of b of q[h] . key
//
// up to a positive factor, which selects the same blocks.
#ifndef INLAY_KERNELS_INDEXER_BLOCK_INDEXER_H_
#define INLAY_KERNELS_INDEXER_BLOCK_INDEXER_H_

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/dispatch.h"
#include "kernels/indexer/index_plan.h"
#include "kernels/indexer/indexer.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxIndexBlock = 4096;

struct BlockIndexerDesc {
  int num_heads = 0;
  int head_dim = 0;
  int block = 0;         // keys; a power of two
  int selects = 0;       // blocks that a query sees, at most
  int neighbours = 1;    // of those, the last ones: the query's own and before
  int64_t max_keys = 0;  // of a sequence, for the workspace
  DType kv = DType::kF32;
  DType activation = DType::kF32;

  // Of a sequence, at most.
  int64_t max_blocks() const { return (max_keys + block - 1) / block; }
};

struct BlockIndexerParams {
  TensorView q;    // [tokens, num_heads * head_dim], rows may be strided
  KvLayerView kv;  // of the keys: one head, rows without values; blocks of the
                   // cache are whole blocks of keys
  absl::Span<const AttentionSequence> sequences;
  // [tokens, num_heads, selects], as AttentionParams::selection wants it with
  // KeyMix::block `block`: of the query at p the first min(p / block + 1,
  // selects) are written, the rest of a row is left as it is.
  int32_t* selection = nullptr;
  void* workspace = nullptr;  // what the row asks for
  // CUDA rows only, see index_plan.h; they do not read `sequences` itself.
  const IndexPlan* plan = nullptr;
};

using BlockIndexerRow = KernelRow<BlockIndexerDesc, BlockIndexerParams>;

// Of a query that has no more than `selects` blocks all are selected.
// Otherwise its neighbours, and of the others those of the highest scores
// (float32; rows of the table may round sums differently), of equal ones the
// lower position. A query's selection depends on its own row of q and on its
// sequence's keys, not on chunks, on what else is in the batch or on the number
// of threads. Whatever the numbers are, blocks are the query's own, each once.
absl::Span<const BlockIndexerRow> BlockIndexerTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateBlockIndexer(const BlockIndexerDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_BLOCK_INDEXER_H_
