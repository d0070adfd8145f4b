#include "core/model/layers/shared_transformer.h"

#include <algorithm>
#include <utility>

#include "core/model/layers/attention_block.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> SharedTransformer::Create(
    const SharedTransformerSpec& spec, const Place& place, ModelBuild& build) {
  auto part = std::make_unique<SharedTransformer>();
  const int64_t hidden = spec.output.n;
  part->hidden_ = hidden;
  part->activation_type_ = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      part->table_,
      build.weights.Matrix(spec.embedding, spec.vocab_size, hidden));
  INLAY_ASSIGN_OR_RETURN(
      part->embed_,
      build.kernels.Choose(
          "embedding", EmbeddingTable(),
          EmbeddingDesc{hidden, part->table_.dtype, DType::kF32}));
  INLAY_ASSIGN_OR_RETURN(part->columns_,
                         build.kernels.Choose("columns", ColumnsTable(),
                                              ColumnsDesc{DType::kF32}));
  INLAY_ASSIGN_OR_RETURN(part->norm_,
                         Norm::Create(spec.norm, 2 * hidden, DType::kF32,
                                      build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      part->attention_,
      AttentionBlock::Create(spec.attention, part->none_, place.kv,
                             place.summaries, place.kv_group, place.rotary_dim,
                             build));
  INLAY_ASSIGN_OR_RETURN(part->mlp_norm_,
                         Norm::Create(spec.mlp_norm, hidden, DType::kF32,
                                      build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      part->gate_up_,
      Linear::Create(spec.gate_up, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      part->low_, Linear::Create(spec.low, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      part->high_, Linear::Create(spec.high, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      part->narrow_,
      Norm::Create({}, spec.gate_up.n, DType::kF32, build.activation, build));
  ActivationDesc activation;
  activation.function = spec.activation;
  activation.gated = true;
  activation.width = spec.down.k;
  activation.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      part->activation_,
      build.kernels.Choose("activation", ActivationTable(), activation));
  INLAY_ASSIGN_OR_RETURN(
      part->down_, Linear::Create(spec.down, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      part->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(part));
}

SharedTransformer::Scratch SharedTransformer::Lay(Arena& arena,
                                                  int64_t tokens) const {
  Scratch scratch;
  scratch.embedding = arena.TakeMatrix(tokens, hidden_, DType::kF32);
  scratch.both = arena.TakeMatrix(tokens, 2 * hidden_, DType::kF32);
  scratch.normalised = arena.TakeMatrix(tokens, 2 * hidden_, activation_type_);
  scratch.low = arena.TakeMatrix(tokens, low_.outputs(), activation_type_);
  scratch.wide = arena.TakeMatrix(tokens, gate_up_.outputs(), DType::kF32);
  scratch.inner =
      narrow_.present()
          ? arena.TakeMatrix(tokens, gate_up_.outputs(), activation_type_)
          : scratch.wide;
  scratch.down = arena.TakeMatrix(tokens, hidden_, activation_type_);
  scratch.attention = arena.Take(attention_->ScratchBytes(tokens));
  return scratch;
}

size_t SharedTransformer::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Lay(arena, tokens);
  return arena.used();
}

size_t SharedTransformer::KernelBytes(int64_t tokens, int64_t sequences) const {
  size_t bytes = attention_->KernelBytes(tokens, sequences);
  for (const Linear* linear : {&gate_up_, &low_, &high_, &down_, &output_}) {
    bytes = std::max(bytes, linear->KernelBytes(tokens));
  }
  return bytes;
}

absl::Status SharedTransformer::SetSideBySide(const Step& step,
                                              const BlockInput& x,
                                              const Scratch& scratch) const {
  EmbeddingParams embed;
  embed.table = table_;
  embed.ids = step.device.ids;
  embed.y = scratch.embedding;
  INLAY_RETURN_IF_ERROR(embed_.Run(embed, step.stream));
  const ColumnRun all = {0, static_cast<int32_t>(hidden_)};
  ColumnsParams copy;
  copy.runs = {&all, 1};
  copy.x = x.hidden;
  copy.y = ColumnSlice(scratch.both, 0, hidden_);
  INLAY_RETURN_IF_ERROR(columns_.Run(copy, step.stream));
  copy.x = scratch.embedding;
  copy.y = ColumnSlice(scratch.both, hidden_, hidden_);
  return columns_.Run(copy, step.stream);
}

absl::Status SharedTransformer::ForwardMlp(const Step& step,
                                           const TensorView& x,
                                           const Scratch& scratch) const {
  void* const room = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(
      gate_up_.Forward(x, {}, scratch.wide, room, step.stream));
  INLAY_RETURN_IF_ERROR(low_.Forward(x, {}, scratch.low, room, step.stream));
  INLAY_RETURN_IF_ERROR(high_.Forward(scratch.low, scratch.wide, scratch.wide,
                                      room, step.stream));
  if (narrow_.present()) {
    INLAY_RETURN_IF_ERROR(
        narrow_.Forward(scratch.wide, scratch.inner, step.stream));
  }
  ActivationParams activate;
  activate.x = scratch.inner;
  activate.y = ColumnSlice(scratch.inner, 0, activation_.desc.width);
  INLAY_RETURN_IF_ERROR(activation_.Run(activate, step.stream));
  return down_.Forward(activate.y, {}, scratch.down, room, step.stream);
}

absl::Status SharedTransformer::Forward(const Step& step, const BlockInput& x,
                                        const TensorView& residual,
                                        const TensorView& y) const {
  INLAY_DCHECK(!x.norm.present());
  const int64_t tokens = x.hidden.rows();
  Arena arena(step.scratch);
  const Scratch scratch = Lay(arena, tokens);
  INLAY_RETURN_IF_ERROR(SetSideBySide(step, x, scratch));
  INLAY_RETURN_IF_ERROR(
      norm_.Forward(scratch.both, scratch.normalised, step.stream));
  Step inner = step;
  inner.scratch = scratch.attention;
  // No longer needed as what it was.
  const TensorView given = scratch.embedding;
  INLAY_RETURN_IF_ERROR(attention_->Forward(
      inner, {none_, scratch.normalised, scratch.normalised}, {}, given));
  const TensorView read =
      MatrixView(scratch.normalised.data, activation_type_, tokens, hidden_);
  INLAY_RETURN_IF_ERROR(mlp_norm_.Forward(given, read, step.stream));
  INLAY_RETURN_IF_ERROR(ForwardMlp(step, read, scratch));
  return output_.Forward(scratch.down, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
