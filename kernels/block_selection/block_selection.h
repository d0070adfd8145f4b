// block_selection: which blocks of keys each query of attention sees, where
// that is chosen by content: sparse attention for models that were not trained
// for it. What a block says of its keys (block_summary.h) is scored, and the
// best blocks are selected, for each query and KV head.
#ifndef INLAY_KERNELS_BLOCK_SELECTION_BLOCK_SELECTION_H_
#define INLAY_KERNELS_BLOCK_SELECTION_BLOCK_SELECTION_H_

#include <cstdint>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/block_selection/block_summary.h"
#include "kernels/dispatch.h"
#include "kernels/indexer/index_plan.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

// Always selected: a sequence's first block, and the last ones, of which the
// query's own is one. The others compete.
inline constexpr int kSinkBlocks = 1;
inline constexpr int kLocalBlocks = 2;
inline constexpr int kForcedBlocks = kSinkBlocks + kLocalBlocks;
inline constexpr int kMinSelectedBlocks = kForcedBlocks + 1;
inline constexpr int kMaxSelectedBlocks = 8192;
inline constexpr int kMaxSelectingGroup = 256;  // query heads a KV head

// What a model is loaded with: how blocks are chosen, and how many tokens of
// them a query sees, a multiple of kSelectBlock. kNone: all.
struct BlockSelectionOptions {
  BlockMethod method = BlockMethod::kNone;
  int64_t tokens = 0;

  bool any() const { return method != BlockMethod::kNone; }
  int num_blocks() const { return static_cast<int>(tokens / kSelectBlock); }
};
// INVALID_ARGUMENT that says what is allowed.
absl::Status ValidateBlockSelectionOptions(
    const BlockSelectionOptions& options);
// "bounds:2048"; "" where there is none. The same for equal selections.
std::string FormatBlockSelection(const BlockSelectionOptions& options);

struct BlockSelectionDesc {
  BlockMethod method = BlockMethod::kBounds;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int num_blocks = 0;    // that a query sees of a KV head, at most
  int64_t max_keys = 0;  // of a sequence, for the workspace
  DType activation = DType::kF32;
};

struct BlockSelectionParams {
  TensorView q;  // [tokens, num_heads * head_dim], as attention reads it
  // Of summaries: num_kv_heads heads, rows as BlockSummaryShape() has them.
  KvLayerView summaries;
  absl::Span<const AttentionSequence> sequences;
  // [tokens, num_kv_heads, num_blocks], as AttentionParams::selection wants it
  // with KeyMix::block kSelectBlock. Of the query at p, min(p / kSelectBlock +
  // 1, num_blocks) are written, the rest of a row is left as it is.
  int32_t* selection = nullptr;
  void* workspace = nullptr;  // what the row asks for
  // CUDA rows only, see kernels/indexer/index_plan.h; they do not read
  // `sequences` itself.
  const IndexPlan* plan = nullptr;
};

using BlockSelectionRow = KernelRow<BlockSelectionDesc, BlockSelectionParams>;

// Of a query that has no more than num_blocks blocks all are selected.
// Otherwise the forced ones, and of the others those of the highest scores
// (float32; rows of the table may round sums differently), of equal ones the
// lower position. Competing blocks are whole and lie before the query, so their
// summaries are there: a query's selection depends on its own row of q and on
// its sequence's keys, not on chunks, on what else is in the batch or on the
// number of threads.
absl::Span<const BlockSelectionRow> BlockSelectionTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateBlockSelection(const BlockSelectionDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_BLOCK_SELECTION_BLOCK_SELECTION_H_
