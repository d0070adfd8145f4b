#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/model/decoder_impl.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The first aligned byte of a caller's scratch that has at least `needed`
// bytes.
absl::StatusOr<std::byte*> AlignScratch(absl::Span<std::byte> workspace,
                                        size_t needed) {
  if (workspace.size() < needed) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the workspace has %d bytes, this call needs %d",
                        workspace.size(), needed));
  }
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  return workspace.data() + (-address) % kScratchAlignment;
}

}  // namespace

Decoder::Workspace Decoder::Place(Arena& arena, int64_t tokens) const {
  Workspace space;
  space.hidden = arena.TakeMatrix(tokens, info_.hidden_size);
  space.branch = arena.TakeMatrix(tokens, info_.hidden_size);
  if (has_post_norms_) {
    space.output = arena.TakeMatrix(tokens, info_.hidden_size);
  }
  space.angles = ropes_.Place(arena, tokens);
  size_t scratch_bytes = 0;
  size_t kernel_bytes = 0;
  for (const std::vector<DecoderBlock>& layer : layers_) {
    for (const DecoderBlock& block : layer) {
      scratch_bytes = std::max(scratch_bytes, block.part->ScratchBytes(tokens));
      kernel_bytes = std::max(kernel_bytes, block.part->KernelBytes(tokens));
    }
  }
  space.scratch = arena.Take(scratch_bytes);
  space.kernel = arena.Take(kernel_bytes);
  return space;
}

size_t Decoder::WorkspaceBytes(int64_t max_tokens,
                               int64_t max_logit_rows) const {
  Arena arena(nullptr);
  Place(arena, max_tokens);
  // Room to align the caller's range.
  return std::max(arena.used(), head_.KernelBytes(max_logit_rows)) +
         kScratchAlignment;
}

absl::Status Decoder::Embed(const ForwardBatch& batch, const TensorView& hidden,
                            Stream& stream) const {
  EmbeddingParams params;
  params.table = embedding_;
  params.ids = batch.tokens.data();
  params.scale = embedding_scale_;
  params.y = hidden;
  INLAY_RETURN_IF_ERROR(embed_.Run(params, stream));
  if (position_embedding_.rank == 0) return absl::OkStatus();
  params.table = position_embedding_;
  params.ids = batch.positions.data();
  params.scale = 1.0f;
  params.accumulate = true;
  return embed_positions_.Run(params, stream);
}

absl::Status Decoder::ForwardBlock(const DecoderBlock& block, const Step& step,
                                   const Workspace& space) const {
  TensorView x = space.hidden;
  if (block.pre_norm.present()) {
    x = space.branch;
    INLAY_RETURN_IF_ERROR(block.pre_norm.Forward(space.hidden, x, step.stream));
  }
  if (!block.post_norm.present()) {
    return block.part->Forward(step, x, space.hidden, space.hidden);
  }
  INLAY_RETURN_IF_ERROR(block.part->Forward(step, x, {}, space.output));
  INLAY_RETURN_IF_ERROR(
      block.post_norm.Forward(space.output, space.output, step.stream));
  ElementwiseParams add;
  add.y = space.hidden;
  add.x = space.output;
  return add_.Run(add, step.stream);
}

absl::Status Decoder::SelectRows(const ForwardBatch& batch,
                                 const TensorView& hidden,
                                 Stream& stream) const {
  if (batch.logit_rows.empty()) return absl::OkStatus();
  EmbeddingParams select;
  select.table = hidden;
  select.ids = batch.logit_rows.data();
  select.y = batch.hidden;
  INLAY_RETURN_IF_ERROR(select_rows_.Run(select, stream));
  if (!final_norm_.present()) return absl::OkStatus();
  return final_norm_.Forward(batch.hidden, batch.hidden, stream);
}

absl::Status Decoder::Logits(TensorView hidden, TensorView logits,
                             absl::Span<std::byte> workspace,
                             Stream& stream) const {
  INLAY_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      AlignScratch(workspace, WorkspaceBytes(0, hidden.rows())));
  INLAY_RETURN_IF_ERROR(head_.Forward(hidden, {}, logits, scratch, stream));
  if (final_softcap_ == 0.0f) return absl::OkStatus();
  ElementwiseParams softcap;
  softcap.y = logits;
  softcap.value = final_softcap_;
  return softcap_.Run(softcap, stream);
}

absl::Status Decoder::Forward(const ForwardBatch& batch,
                              absl::Span<std::byte> workspace,
                              Stream& stream) const {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  if (tokens == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(std::byte* const scratch,
                         AlignScratch(workspace, WorkspaceBytes(tokens, 0)));
  Arena arena(scratch);
  const Workspace space = Place(arena, tokens);

  ropes_.Fill(batch, space.angles);
  INLAY_RETURN_IF_ERROR(Embed(batch, space.hidden, stream));
  const Step step{batch, stream, space.angles, space.scratch, space.kernel};
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const DecoderBlock& block : layers_[i]) {
      INLAY_RETURN_IF_ERROR(ForwardBlock(block, step, space));
    }
    if (batch.observer != nullptr) {
      INLAY_RETURN_IF_ERROR(stream.Synchronize());
      batch.observer->OnLayer(static_cast<int>(i), space.hidden);
    }
  }
  return SelectRows(batch, space.hidden, stream);
}

}  // namespace inlay
