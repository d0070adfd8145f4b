// BlockSelector: which blocks of keys the queries of an attention block see,
// chosen by content (kernels/block_selection). Summaries of blocks are kept by
// the cache as a layer of their own.
#ifndef INLAY_CORE_MODEL_LAYERS_BLOCK_SELECTOR_H_
#define INLAY_CORE_MODEL_LAYERS_BLOCK_SELECTOR_H_

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/block_selection/block_selection.h"
#include "kernels/block_selection/block_summary.h"

namespace inlay {

// Whether ModelLoadOptions::block_selection is for such a part: one whose
// queries see all tokens before them.
bool CanSelectBlocks(const AttentionSpec& spec);

class BlockSelector {
 public:
  BlockSelector() = default;
  // `keys` and `summaries` with null bases: their places in a block of
  // `kv_group`. Where the keys are another part's so are their summaries.
  static absl::StatusOr<BlockSelector> Create(const AttentionSpec& spec,
                                              const KvLayerView& keys,
                                              const KvLayerView& summaries,
                                              size_t kv_group,
                                              ModelBuild& build);

  bool present() const { return select_.row != nullptr; }
  // As Sublayer has them; the selection is a part of the first.
  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // What AttentionDesc has of it.
  void Describe(AttentionDesc& attention) const;
  // Summarises blocks that the step's keys complete, which are in the cache,
  // and selects for queries `q`; the selection is at `selection`.
  absl::Status Forward(const Step& step, const TensorView& q,
                       int32_t* selection) const;

 private:
  size_t kv_group_ = 0;
  bool summarises_ = true;
  KvLayerView keys_;
  KvLayerView summaries_;
  Op<BlockSummaryDesc, BlockSummaryParams> summarise_;
  Op<BlockSelectionDesc, BlockSelectionParams> select_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_BLOCK_SELECTOR_H_
