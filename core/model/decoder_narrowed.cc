// The last layer for those rows alone whose logits are wanted.
#include "core/model/decoder_impl.h"
#include "core/model/layers/wanted_queries.h"
#include "memory/status.h"

namespace inlay {

Decoder::Few Decoder::PlaceFew(Arena& arena, int64_t rows,
                               const Workspace& space) const {
  Few few;
  few.space = space;
  few.space.hidden = arena.TakeMatrix(rows, info_.hidden_size, DType::kF32);
  few.space.mixed = few.space.hidden;
  few.space.branch = arena.TakeMatrix(rows, info_.hidden_size, activation_);
  if (needs_output_) few.space.output = space.output.RowSlice(0, rows);
  if (defers_) {
    few.space.deferred = arena.TakeMatrix(rows, info_.hidden_size, DType::kF32);
  }
  if (keeps_inputs_) {
    few.space.layer_input =
        arena.TakeMatrix(rows, info_.hidden_size, DType::kF32);
  }
  if (narrowed_attention_ == nullptr) return few;
  few.context = arena.TakeMatrix(rows, select_context_.desc.width, activation_);
  few.queries = reinterpret_cast<AttentionSequence*>(
      arena.Take(static_cast<size_t>(rows) * sizeof(AttentionSequence)));
  return few;
}

bool Decoder::Narrows(const Step& step, const Workspace& space) const {
  if (!narrows_ || step.batch.layers != nullptr ||
      step.batch.observer != nullptr || Chains(layers_.back(), step)) {
    return false;
  }
  const int64_t rows = step.batch.hidden.rows();
  if (rows >= space.hidden.rows()) return false;
  Arena needed(nullptr);
  PlaceFew(needed, rows, space);
  return needed.used() <= space.selected.bytes();
}

absl::StatusOr<TensorView> Decoder::WantedRows(
    const Step& step, const Op<EmbeddingDesc, EmbeddingParams>& select,
    const TensorView& all, const TensorView& room) const {
  const absl::Span<const int32_t> rows = step.batch.logit_rows;
  const auto count = static_cast<int64_t>(rows.size());
  if (rows.back() - rows.front() + 1 == count) {
    return all.RowSlice(rows.front(), count);
  }
  EmbeddingParams params;
  params.table = all;
  params.ids = step.device.logit_rows;
  params.y = room;
  INLAY_RETURN_IF_ERROR(select.Run(params, step.stream));
  return room;
}

absl::Status Decoder::AttendWanted(const Step& step, const Workspace& space,
                                   const Few& few) const {
  const AttentionBlock& attention = *narrowed_attention_;
  const int64_t tokens = space.hidden.rows();
  INLAY_RETURN_IF_ERROR(
      attention.Begin(step, InputOf(layers_.back().blocks[0].pre_norm, space)));
  if (!attention.may_leave_out()) return attention.Mix(step, tokens);
  AttentionBlock::Queries queries;
  if (device_->host_addressable()) {
    const int64_t count =
        KeepWantedQueries(step.batch.SequencesOf(attention.cut().kv_group),
                          step.batch.logit_rows, few.queries);
    queries.sequences = {few.queries, static_cast<size_t>(count)};
  } else {
    queries.plan = &step.device.plans[wanted_cut_];
    INLAY_DCHECK(queries.plan->device != nullptr);
  }
  return attention.Attend(step, tokens, queries);
}

absl::Status Decoder::ForwardNarrowed(const DecoderLayer& layer,
                                      const Step& step,
                                      const Workspace& space) const {
  const auto count = static_cast<int64_t>(step.batch.logit_rows.size());
  const AttentionBlock* const attention = narrowed_attention_;
  const DecoderBlock& first = layer.blocks.front();
  Arena arena(space.selected.data);
  Few few = PlaceFew(arena, count, space);
  if (attention == nullptr) {
    for (size_t i = 0; i + 1 < layer.blocks.size(); ++i) {
      INLAY_RETURN_IF_ERROR(ForwardBlock(layer.blocks[i], step, space));
    }
  } else if (count == 0 && attention->may_leave_out()) {
    return attention->WriteKv(step, InputOf(first.pre_norm, space));
  } else {
    INLAY_RETURN_IF_ERROR(AttendWanted(step, space, few));
  }
  if (count == 0) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      few.space.hidden,
      WantedRows(step, select_rows_, space.hidden, few.space.hidden));
  few.space.mixed = few.space.hidden;
  if (layer.defers) {
    INLAY_ASSIGN_OR_RETURN(
        few.space.deferred,
        WantedRows(step, select_rows_, space.deferred, few.space.deferred));
  }
  if (attention != nullptr) {
    INLAY_ASSIGN_OR_RETURN(
        few.context,
        WantedRows(step, select_context_,
                   attention->MixedOf(step, space.hidden.rows()), few.context));
    INLAY_RETURN_IF_ERROR(AddPart(
        first, step, few.space,
        [&](const TensorView& residual, const TensorView& y) {
          return attention->output().Forward(
              few.context, residual, y, step.kernel_workspace, step.stream);
        }));
  }
  Step last = step;
  if (layer.keeps_input) {
    INLAY_ASSIGN_OR_RETURN(last.layer_input,
                           WantedRows(step, select_rows_, space.layer_input,
                                      few.space.layer_input));
  }
  INLAY_RETURN_IF_ERROR(ForwardBlock(layer.blocks.back(), last, few.space));
  INLAY_RETURN_IF_ERROR(FinishLayer(layer, step, few.space));
  return final_norm_.Forward(few.space.hidden, step.batch.hidden, step.stream);
}

}  // namespace inlay
