// indexer: which keys each query of sparse attention by content sees. A small
// attention of its own scores every key, and the best are selected. Source: the
// lightning indexer of DeepSeek sparse attention (DeepSeek-V3.2,
// arXiv:2512.02556). The score of the query at p and the key at k <= p is
//
//   sum over heads h of weights[h] * max(0, q[h] . key)
//
// up to a positive factor, which selects the same keys.
#ifndef INLAY_KERNELS_INDEXER_INDEXER_H_
#define INLAY_KERNELS_INDEXER_INDEXER_H_

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/dispatch.h"
#include "kernels/indexer/index_plan.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxIndexHeads = 256;
inline constexpr int kMaxIndexHeadDim = 256;
inline constexpr int kMaxIndexTopK = 8192;

struct IndexerDesc {
  int num_heads = 0;
  int head_dim = 0;
  int top_k = 0;         // keys that a query sees, at most
  int64_t max_keys = 0;  // of a sequence; CUDA rows have a workspace for them
  DType kv = DType::kF32;
  DType activation = DType::kF32;
  // Tokens a key (KvLayerShape::row_tokens): the query at p sees the first (p +
  // 1) / key_tokens keys.
  int key_tokens = 1;
  // Behind the keys that are selected comes the place of the one that the last
  // (p + 1) % key_tokens tokens will be a part of, where there are such tokens:
  // their query sees them in any case (GLM-5.3).
  bool adds_partial = false;

  // Of a row of IndexerParams::selection.
  int width() const { return top_k + (adds_partial ? 1 : 0); }
};

struct IndexerParams {
  TensorView q;        // [tokens, num_heads * head_dim], rows may be strided
  TensorView weights;  // [tokens, num_heads] f32, rows may be strided
  KvLayerView kv;      // of the keys: one head, rows without values
  absl::Span<const AttentionSequence> sequences;
  // [tokens, desc.width()], as AttentionParams::selection wants it: of the
  // query at p the slots of min((p + 1) / key_tokens, top_k) keys, ascending by
  // position, and of what desc.adds_partial adds. The rest of a row is left as
  // it is.
  int32_t* selection = nullptr;
  void* workspace = nullptr;  // what the row asks for
  // CUDA rows only: made for `sequences` and uploaded, see index_plan.h; they
  // do not read `sequences` itself.
  const IndexPlan* plan = nullptr;
};

using IndexerRow = KernelRow<IndexerDesc, IndexerParams>;

// Of a query that sees no more than top_k keys all are selected. Otherwise
// those with the highest scores (float32; the rows of the table may round sums
// differently); of equal ones the key of lower position. A query's selection
// depends on its own row of q and weights and on its sequence's keys, not on
// chunks, on what else is in the batch or on the number of threads. NaN counts
// as more than any number: slots are a query's own whatever the inputs.
absl::Span<const IndexerRow> IndexerTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateIndexer(const IndexerDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_INDEXER_INDEXER_H_
