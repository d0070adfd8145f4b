#include "core/model/layers/block_selector.h"

#include "memory/status.h"

namespace inlay {

bool CanSelectBlocks(const AttentionSpec& spec) {
  return spec.causal && spec.window == 0 && spec.chunk == 0 &&
         spec.alibi_scale == 0.0f && !spec.distance_bias.has_value() &&
         !spec.relative.has_value() && !spec.block_index.has_value();
}

absl::StatusOr<BlockSelector> BlockSelector::Create(
    const AttentionSpec& spec, const KvLayerView& keys,
    const KvLayerView& summaries, size_t kv_group, ModelBuild& build) {
  BlockSelector selector;
  selector.kv_group_ = kv_group;
  selector.summarises_ = spec.kv_source < 0;
  selector.keys_ = keys;
  selector.summaries_ = summaries;
  BlockSummaryDesc summary;
  summary.method = build.block_selection.method;
  summary.num_kv_heads = spec.num_kv_heads;
  summary.head_dim = spec.head_dim;
  summary.kv = keys.dtype;
  INLAY_ASSIGN_OR_RETURN(
      selector.summarise_,
      build.kernels.Choose("block_summary", BlockSummaryTable(), summary));
  BlockSelectionDesc select;
  select.method = build.block_selection.method;
  select.num_heads = spec.num_heads;
  select.num_kv_heads = spec.num_kv_heads;
  select.head_dim = spec.head_dim;
  select.num_blocks = build.block_selection.num_blocks();
  select.max_keys = build.max_positions;
  select.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      selector.select_,
      build.kernels.Choose("block_selection", BlockSelectionTable(), select));
  return selector;
}

size_t BlockSelector::ScratchBytes(int64_t tokens) const {
  if (!present()) return 0;
  const auto rows = static_cast<size_t>(tokens * select_.desc.num_kv_heads);
  return rows * static_cast<size_t>(select_.desc.num_blocks) * sizeof(int32_t);
}

size_t BlockSelector::KernelBytes(int64_t tokens) const {
  return present() ? select_.WorkspaceBytes(tokens) : 0;
}

void BlockSelector::Describe(AttentionDesc& attention) const {
  if (!present()) return;
  attention.selects = select_.desc.num_blocks * kSelectBlock;
  attention.mix.block = kSelectBlock;
}

absl::Status BlockSelector::Forward(const Step& step, const TensorView& q,
                                    int32_t* selection) const {
  KvLayerView summaries = summaries_;
  summaries.base = step.batch.kv_base;
  if (summarises_) {
    BlockSummaryParams summary;
    summary.keys = keys_;
    summary.keys.base = step.batch.kv_base;
    summary.summaries = summaries;
    summary.tokens = step.device.tokens;
    summary.slots = step.device.SlotsOf(kv_group_);
    INLAY_RETURN_IF_ERROR(summarise_.Run(summary, step.stream));
  }
  BlockSelectionParams select;
  select.q = q;
  select.summaries = summaries;
  select.sequences = step.batch.SequencesOf(kv_group_);
  select.selection = selection;
  select.workspace = step.kernel_workspace;
  select.plan = step.device.IndexOf(kv_group_);
  return select_.Run(select, step.stream);
}

}  // namespace inlay
