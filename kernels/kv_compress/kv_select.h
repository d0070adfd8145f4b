// kv_select: which keys the queries of attention over compressed keys see, as
// AttentionParams::selection names them (KeyMix): those of the tokens in a
// window, and then compressed ones, all or those that an indexer has chosen.
// Both are rows of two layers of the cache that count rows; they are named in
// the view that takes all rows of blocks as one layer's (KvLayerView::InRows).
#ifndef INLAY_KERNELS_KV_COMPRESS_KV_SELECT_H_
#define INLAY_KERNELS_KV_COMPRESS_KV_SELECT_H_

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/dispatch.h"
#include "kernels/indexer/index_plan.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

struct KvSelectDesc {
  int window = 0;
  int row_tokens = 0;      // of a compressed key
  int most = 0;            // compressed keys of a query
  bool is_chosen = false;  // KvSelectParams::chosen is there

  int selects() const { return window + most; }
  KeyMix mix() const { return {window, row_tokens}; }
};

struct KvSelectParams {
  int64_t tokens = 0;
  KvLayerView near;  // the layer of tokens' keys
  KvLayerView far;   // that of compressed ones
  absl::Span<const AttentionSequence> near_sequences;
  absl::Span<const AttentionSequence> far_sequences;
  // [tokens, most]: IndexerParams::selection, of a layer whose rows lie as
  // those of `far`.
  const int32_t* chosen = nullptr;
  // [tokens, selects()]. What is behind a query's keys is left as it is.
  int32_t* selection = nullptr;
  // CUDA rows only: made for the sequences and uploaded; they do not read the
  // sequences themselves.
  const IndexPlan* near_plan = nullptr;
  const IndexPlan* far_plan = nullptr;
};

using KvSelectRow = KernelRow<KvSelectDesc, KvSelectParams>;
absl::Span<const KvSelectRow> KvSelectTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateKvSelect(const KvSelectDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_KV_COMPRESS_KV_SELECT_H_
