#include <algorithm>
#include <vector>

#include "core/model/decoder_impl.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The first aligned byte of a caller's scratch that has at least `needed`
// bytes.
absl::StatusOr<std::byte*> AlignScratch(absl::Span<std::byte> workspace,
                                        size_t needed) {
  if (workspace.size() < needed) {
    return absl::InvalidArgumentError(
        FormattedString("the workspace has %d bytes, this call needs %d",
                        workspace.size(), needed));
  }
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  return workspace.data() + (-address) % kScratchAlignment;
}

DeviceBatch HostArrays(const ForwardBatch& batch) {
  DeviceBatch arrays;
  arrays.tokens = static_cast<int64_t>(batch.tokens.size());
  arrays.ids = batch.tokens.data();
  arrays.positions = batch.positions.data();
  if (!batch.segments.empty()) arrays.segments = batch.segments.data();
  arrays.slots = batch.slots.data();
  arrays.logit_rows = batch.logit_rows.data();
  return arrays;
}

}  // namespace

Decoder::Workspace Decoder::Place(Arena& arena, int64_t tokens,
                                  int64_t sequences) const {
  Workspace space;
  space.hidden = arena.TakeMatrix(tokens, info_.stream_width, DType::kF32);
  space.mixed = space.hidden;
  if (hyper_head_.present()) {
    space.mixed = arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
    space.hyper = hyper_head_.Place(arena, tokens);
  } else if (altup_.present()) {
    space.mixed = arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
  }
  // Rows are selected when the last block has read its input.
  space.selected = arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
  space.branch =
      MatrixView(space.selected.data, activation_, tokens, info_.hidden_size);
  if (needs_output_) {
    space.output = arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
  }
  if (defers_) {
    space.deferred = arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
  }
  if (loops_) {
    space.kept = arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
  }
  if (keeps_inputs_) {
    space.layer_input =
        arena.TakeMatrix(tokens, info_.hidden_size, DType::kF32);
  }
  if (info_.first_values > 0) {
    space.first_values =
        arena.TakeMatrix(tokens, info_.first_values, activation_);
  }
  space.per_layer = per_layer_inputs_.Place(arena, tokens);
  if (selects_ > 0) {
    space.selection = reinterpret_cast<int32_t*>(
        arena.Take(static_cast<size_t>(tokens * selects_) * sizeof(int32_t)));
  }
  space.angles = ropes_.Place(arena, tokens);
  size_t scratch_bytes = 0;
  size_t kernel_bytes =
      per_layer_inputs_.present() ? per_layer_inputs_.KernelBytes(tokens) : 0;
  kernel_bytes = std::max({kernel_bytes, hyper_head_.KernelBytes(tokens),
                           altup_.KernelBytes(tokens)});
  if (embedding_projection_.has_value()) {
    kernel_bytes =
        std::max(kernel_bytes, embedding_projection_->KernelBytes(tokens));
  }
  for (const DecoderLayer& layer : layers_) {
    for (const DecoderBlock& block : layer.blocks) {
      scratch_bytes = std::max({scratch_bytes, block.part->ScratchBytes(tokens),
                                block.laurel.ScratchBytes(tokens)});
      kernel_bytes = std::max({kernel_bytes, block.hyper.KernelBytes(tokens),
                               block.laurel.KernelBytes(tokens)});
      kernel_bytes =
          std::max(kernel_bytes, block.part->KernelBytes(tokens, sequences));
    }
  }
  space.scratch = arena.Take(scratch_bytes);
  space.kernel = arena.Take(kernel_bytes);
  return space;
}

size_t Decoder::WorkspaceBytes(int64_t max_tokens, int64_t max_logit_rows,
                               int64_t max_sequences) const {
  Arena arena(nullptr);
  Place(arena, max_tokens, std::min(max_tokens, max_sequences));
  Arena head(nullptr);
  PlaceHead(head, max_logit_rows);
  // Room to align the caller's range.
  return std::max(arena.used(), head.used()) + kScratchAlignment;
}

Decoder::HeadScratch Decoder::PlaceHead(Arena& arena, int64_t rows) const {
  HeadScratch space;
  if (before_head_.present()) {
    space.inner = arena.TakeMatrix(rows, before_head_.outputs(), activation_);
  }
  space.rows = arena.Take(
      std::max(before_head_.ScratchBytes(rows), pooled_.ScratchBytes(rows)));
  size_t kernel_bytes = info_.logit_width() > 0 ? head_.KernelBytes(rows) : 0;
  kernel_bytes = std::max({kernel_bytes, before_head_.KernelBytes(rows),
                           pooled_.KernelBytes(rows)});
  space.kernel = arena.Take(kernel_bytes);
  return space;
}

absl::Status Decoder::Prepare(Stream& stream) const {
  if (device_->info().kind != DeviceKind::kCuda) return absl::OkStatus();
  const DeviceScope scope(*device_);
  const absl::Status prepared = PrepareGemmCuda(stream);
  // Kernels of our own serve without the library.
  return absl::IsFailedPrecondition(prepared) ? absl::OkStatus() : prepared;
}

absl::Status Decoder::ProjectEmbedding(const TensorView& narrow,
                                       const TensorView& hidden,
                                       const Workspace& space,
                                       Stream& stream) const {
  const TensorView x =
      MatrixView(space.branch.data, activation_, narrow.rows(), narrow.cols());
  INLAY_RETURN_IF_ERROR(convert_embedding_.Forward(narrow, x, stream));
  return embedding_projection_->Forward(x, {}, hidden, space.kernel, stream);
}

absl::Status Decoder::EmbedTokens(const DeviceBatch& batch,
                                  const TensorView& hidden,
                                  const Workspace& space,
                                  Stream& stream) const {
  EmbeddingParams params;
  params.table = embedding_;
  params.ids = batch.ids;
  params.scale = embedding_scale_;
  params.y = hidden;
  if (!embedding_projection_.has_value() || projects_last_) {
    return embed_.Run(params, stream);
  }
  // Float32 rows lie for a moment where the stream is to be.
  const int64_t width = embedding_projection_->desc().k;
  params.y = MatrixView(space.hidden.data, DType::kF32, hidden.rows(), width);
  INLAY_RETURN_IF_ERROR(embed_.Run(params, stream));
  return ProjectEmbedding(params.y, hidden, space, stream);
}

absl::Status Decoder::Embed(const DeviceBatch& batch, const TensorView& hidden,
                            const Workspace& space, Stream& stream) const {
  // Rows that are projected when all is added lie there, too, until then.
  TensorView rows = hidden;
  if (projects_last_) {
    rows = MatrixView(space.hidden.data, DType::kF32, hidden.rows(),
                      embedding_projection_->desc().k);
  }
  INLAY_RETURN_IF_ERROR(EmbedTokens(batch, rows, space, stream));
  EmbeddingParams params;
  params.y = rows;
  params.accumulate = true;
  for (const Added& added : added_) {
    params.table = added.table;
    params.ids = batch.positions;
    if (added.by_segment && batch.segments != nullptr) {
      params.ids = batch.segments;
    } else if (added.by_segment) {
      // The first row at every position.
      params.table.dims[0] = info_.max_positions;
      params.table.row_stride_bytes = 0;
    }
    INLAY_RETURN_IF_ERROR(added.op.Run(params, stream));
  }
  if (embedding_norm_.present()) {
    INLAY_RETURN_IF_ERROR(embedding_norm_.Forward(rows, rows, stream));
  }
  if (!projects_last_) return absl::OkStatus();
  return ProjectEmbedding(rows, hidden, space, stream);
}

absl::Status Decoder::EmbedAll(const DeviceBatch& batch, const Workspace& space,
                               Stream& stream) const {
  if (altup_.present()) return EmbedAltUp(batch, space, stream);
  for (int64_t at = 0; at < info_.stream_width; at += info_.hidden_size) {
    INLAY_RETURN_IF_ERROR(
        Embed(batch, ColumnSlice(space.hidden, at, info_.hidden_size), space,
              stream));
  }
  return absl::OkStatus();
}

absl::Status Decoder::Begin(const DeviceBatch& batch, bool embeds,
                            const Workspace& space, Stream& stream) const {
  if (embeds) INLAY_RETURN_IF_ERROR(EmbedAll(batch, space, stream));
  if (!per_layer_inputs_.present()) return absl::OkStatus();
  // The residual stream may be of a layer further on. What per-layer blocks
  // give is normalised, so that there is a place for it.
  INLAY_DCHECK(needs_output_);
  TensorView embeddings = altup_.present() ? space.mixed : space.hidden;
  if (!embeds) {
    embeddings = space.output;
    INLAY_RETURN_IF_ERROR(Embed(batch, embeddings, space, stream));
  }
  return per_layer_inputs_.Forward(batch.ids, embeddings, space.branch,
                                   space.per_layer, space.kernel, stream);
}

BlockInput Decoder::InputOf(const Norm& norm, const Workspace& space) {
  return {norm, space.mixed, norm.present() ? space.branch : space.mixed};
}

absl::Status Decoder::ForwardStreams(const DecoderBlock& block,
                                     const Step& step,
                                     const Workspace& space) const {
  INLAY_RETURN_IF_ERROR(
      block.hyper.Mix(space.hidden, space.mixed, space.hyper, step));
  INLAY_RETURN_IF_ERROR(block.part->Forward(
      step, InputOf(block.pre_norm, space), {}, space.output));
  return block.hyper.Spread(space.output, space.hidden, space.hyper, step);
}

absl::Status Decoder::ForwardBlock(const DecoderBlock& block, const Step& step,
                                   const Workspace& space) const {
  if (block.hyper.present()) return ForwardStreams(block, step, space);
  if (block.laurel.present()) return ForwardLaurel(block, step, space);
  const BlockInput x = InputOf(block.pre_norm, space);
  return AddPart(block, step, space,
                 [&](const TensorView& residual, const TensorView& y) {
                   return block.part->Forward(step, x, residual, y);
                 });
}

absl::Status Decoder::AddPart(
    const DecoderBlock& block, const Step& step, const Workspace& space,
    absl::FunctionRef<absl::Status(const TensorView&, const TensorView&)> part)
    const {
  if (block.deferred) return part({}, space.deferred);
  if (block.aside) return part(space.hidden, space.deferred);
  if (!block.finishes()) {
    INLAY_RETURN_IF_ERROR(part(space.hidden, space.hidden));
    return NormaliseSum(block, step, space);
  }
  INLAY_RETURN_IF_ERROR(part({}, space.output));
  ElementwiseParams finish;
  finish.y = space.output;
  if (block.post_norm_of_sum) {
    finish.x = space.hidden;
    INLAY_RETURN_IF_ERROR(add_.Run(finish, step.stream));
  }
  if (block.post_norm.present()) {
    INLAY_RETURN_IF_ERROR(
        block.post_norm.Forward(space.output, space.output, step.stream));
  }
  if (block.scale != 1.0f) {
    finish.value = block.scale;
    INLAY_RETURN_IF_ERROR(scale_.Run(finish, step.stream));
  }
  if (block.stream_norm.present()) {
    INLAY_RETURN_IF_ERROR(
        block.stream_norm.Forward(space.hidden, space.hidden, step.stream));
  }
  finish.y = space.hidden;
  finish.x = space.output;
  INLAY_RETURN_IF_ERROR(add_.Run(finish, step.stream));
  return NormaliseSum(block, step, space);
}

absl::Status Decoder::BeginLayer(const DecoderLayer& layer, const Step& step,
                                 const Workspace& space) const {
  INLAY_RETURN_IF_ERROR(GoRound(layer, step, space));
  if (!layer.keeps_input) return absl::OkStatus();
  return keep_input_.Forward(space.hidden, space.layer_input, step.stream);
}

absl::Status Decoder::GoRound(const DecoderLayer& layer, const Step& step,
                              const Workspace& space) const {
  if (!layer.loop_norm.present()) return absl::OkStatus();
  if (layer.begins_loop) {
    INLAY_RETURN_IF_ERROR(
        layer.loop_norm.Forward(space.hidden, space.kept, step.stream));
  }
  INLAY_RETURN_IF_ERROR(
      layer.loop_norm.Forward(space.hidden, space.hidden, step.stream));
  ElementwiseParams sum;
  sum.y = space.hidden;
  sum.x = space.kept;
  return add_.Run(sum, step.stream);
}

absl::Status Decoder::NormaliseSum(const DecoderBlock& block, const Step& step,
                                   const Workspace& space) {
  if (!block.sum_norm.present()) return absl::OkStatus();
  return block.sum_norm.Forward(space.hidden, space.hidden, step.stream);
}

// The residual stream is the last block's to write: until then all read it.
absl::Status Decoder::ForwardParallel(const DecoderLayer& layer,
                                      const Step& step,
                                      const Workspace& space) const {
  BlockInput shared = {Norm::None(), space.branch, space.branch};
  if (layer.pre_norm.present()) {
    INLAY_RETURN_IF_ERROR(
        InputOf(layer.pre_norm, space).Normalise(step.stream));
  }
  for (size_t i = 0; i < layer.blocks.size(); ++i) {
    const DecoderBlock& block = layer.blocks[i];
    const bool is_last = i + 1 == layer.blocks.size();
    INLAY_RETURN_IF_ERROR(block.part->Forward(
        step,
        layer.pre_norm.present() ? shared : InputOf(block.pre_norm, space),
        i == 0 ? space.hidden : space.output,
        is_last ? space.hidden : space.output));
  }
  return absl::OkStatus();
}

absl::Status Decoder::SelectRows(const Step& step,
                                 const Workspace& space) const {
  const TensorView& out = step.batch.hidden;
  const int64_t count = out.rows();
  if (count == 0) return absl::OkStatus();
  if (hyper_head_.present()) {
    INLAY_RETURN_IF_ERROR(
        hyper_head_.Mix(space.hidden, space.mixed, space.hyper, step));
  } else if (altup_.present()) {
    INLAY_RETURN_IF_ERROR(altup_.Merge(space.hidden, space.mixed,
                                       AltUpScratch(space), step.stream));
  }
  // Ascending: as many rows as tokens are all of them.
  const bool all = count == space.hidden.rows();
  if (all && final_norm_.present()) {
    return final_norm_.Forward(space.mixed, out, step.stream);
  }
  EmbeddingParams select;
  select.table = space.mixed;
  select.ids = step.device.logit_rows;
  select.y = final_norm_.present() ? space.selected.RowSlice(0, count) : out;
  INLAY_RETURN_IF_ERROR(select_rows_.Run(select, step.stream));
  if (!final_norm_.present()) return absl::OkStatus();
  return final_norm_.Forward(select.y, out, step.stream);
}

absl::Status Decoder::Logits(TensorView hidden, TensorView logits,
                             absl::Span<std::byte> workspace,
                             Stream& stream) const {
  if (info_.logit_width() == 0) {
    return absl::FailedPreconditionError(
        "a network without a head has no logits");
  }
  INLAY_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      AlignScratch(workspace, WorkspaceBytes(0, hidden.rows())));
  const DeviceScope scope(*device_);
  Arena arena(scratch);
  const HeadScratch space = PlaceHead(arena, hidden.rows());
  TensorView input = hidden;
  if (before_head_.present()) {
    INLAY_RETURN_IF_ERROR(before_head_.Forward(hidden, space.inner, space.rows,
                                               space.kernel, stream));
    input = space.inner;
  }
  INLAY_RETURN_IF_ERROR(head_.Forward(input, {}, logits, space.kernel, stream));
  ElementwiseParams finish;
  finish.y = logits;
  if (logit_channels_.present()) {
    INLAY_RETURN_IF_ERROR(logit_channels_.Forward(logits, logits, stream));
  }
  if (logit_scale_ != 1.0f) {
    finish.value = logit_scale_;
    INLAY_RETURN_IF_ERROR(scale_logits_.Run(finish, stream));
  }
  if (final_softcap_ == 0.0f) return absl::OkStatus();
  finish.value = final_softcap_;
  return softcap_.Run(finish, stream);
}

bool Decoder::LeaveSomePages(uint64_t* at) const {
  constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
  if (storage_.source == nullptr) return false;
  const uint64_t begin = *at;
  *at += kPieceBytes;
  return storage_.source->LeavePages({begin, *at}) > *at;
}

absl::Status Decoder::Pooled(TensorView hidden, TensorView y,
                             absl::Span<std::byte> workspace,
                             Stream& stream) const {
  if (!pooled_.present()) {
    return absl::FailedPreconditionError(
        "the model makes nothing else of pooled states");
  }
  INLAY_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      AlignScratch(workspace, WorkspaceBytes(0, hidden.rows())));
  const DeviceScope scope(*device_);
  Arena arena(scratch);
  const HeadScratch space = PlaceHead(arena, hidden.rows());
  return pooled_.Forward(hidden, y, space.rows, space.kernel, stream);
}

absl::Status Decoder::Observe(int layer, const Step& step,
                              const TensorView& hidden) const {
  if (device_->host_addressable()) {
    INLAY_RETURN_IF_ERROR(step.stream.Synchronize());
    step.batch.observer->OnLayer(layer, hidden);
    return absl::OkStatus();
  }
  std::vector<std::byte> copy(hidden.bytes());
  INLAY_RETURN_IF_ERROR(
      device_->Copy(copy.data(), hidden.data, copy.size(), step.stream));
  INLAY_RETURN_IF_ERROR(step.stream.Synchronize());
  TensorView view = hidden;
  view.data = copy.data();
  step.batch.observer->OnLayer(layer, view);
  return absl::OkStatus();
}

absl::Status Decoder::FinishLayer(const DecoderLayer& layer, const Step& step,
                                  const Workspace& space) const {
  ElementwiseParams finish;
  finish.y = space.hidden;
  if (layer.defers) {
    finish.x = space.deferred;
    INLAY_RETURN_IF_ERROR(add_.Run(finish, step.stream));
  }
  if (layer.scale == 1.0f) return absl::OkStatus();
  finish.value = layer.scale;
  return scale_.Run(finish, step.stream);
}

bool Decoder::Chains(const DecoderLayer& layer, const Step& step) const {
  return step.batch.layers == nullptr && step.batch.observer == nullptr &&
         layer.chain.Serves(step.device.tokens);
}

absl::Status Decoder::ForwardLayer(size_t index, const Step& step,
                                   const Workspace& space) const {
  const DecoderLayer& layer = layers_[index];
  if (layer.parallel) return ForwardParallel(layer, step, space);
  if (layer.altup.present()) return ForwardAltUp(layer, step, space);
  if (Chains(layer, step)) {
    const TokenMixer& mixer = *layer.blocks[0].mixer;
    const bool is_begun = index > 0 && Chains(layers_[index - 1], step) &&
                          layers_[index - 1].chain.begins_next();
    if (!is_begun) {
      INLAY_RETURN_IF_ERROR(
          mixer.Begin(step, InputOf(layer.blocks[0].pre_norm, space)));
    }
    INLAY_RETURN_IF_ERROR(mixer.Mix(step, space.hidden.rows()));
    return layer.chain.Forward(step, space.hidden);
  }
  Workspace seen = space;
  for (const DecoderBlock& block : layer.blocks) {
    INLAY_RETURN_IF_ERROR(ForwardBlock(block, step, seen));
    seen.mixed = block.aside ? space.deferred : space.mixed;
  }
  return absl::OkStatus();
}

absl::Status Decoder::ForwardLayers(const Step& step,
                                    const Workspace& space) const {
  size_t first = 0, end = layers_.size();
  if (const LayerRange* range = step.batch.layers; range != nullptr) {
    first = static_cast<size_t>(range->first);
    end = first + static_cast<size_t>(range->count);
  }
  for (size_t i = first; i < end; ++i) {
    INLAY_RETURN_IF_ERROR(BeginLayer(layers_[i], step, space));
    if (i + 1 == layers_.size() && Narrows(step, space)) {
      return ForwardNarrowed(layers_[i], step, space);
    }
    INLAY_RETURN_IF_ERROR(ForwardLayer(i, step, space));
    INLAY_RETURN_IF_ERROR(FinishLayer(layers_[i], step, space));
    if (step.batch.observer != nullptr) {
      INLAY_RETURN_IF_ERROR(Observe(static_cast<int>(i), step, space.hidden));
    }
  }
  return end == layers_.size() ? SelectRows(step, space) : absl::OkStatus();
}

absl::Status Decoder::Forward(const ForwardBatch& batch,
                              absl::Span<std::byte> workspace,
                              Stream& stream) const {
  if (batch.tokens.empty()) return absl::OkStatus();
  DeviceBatch own;
  const DeviceBatch* device = batch.device;
  if (device == nullptr) {
    own = HostArrays(batch);
    device = &own;
  }
  const int64_t tokens = device->tokens;
  const int64_t sequences =
      batch.device == nullptr ||
              tokens != static_cast<int64_t>(batch.tokens.size())
          ? tokens
          : static_cast<int64_t>(batch.SequencesOf(0).size());
  INLAY_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      AlignScratch(workspace, WorkspaceBytes(tokens, 0, sequences)));
  Arena arena(scratch);
  Workspace space = Place(arena, tokens, sequences);
  if (batch.layers != nullptr) {
    space.hidden = batch.layers->hidden;
    if (!hyper_head_.present() && !altup_.present()) {
      space.mixed = space.hidden;
    }
    if (batch.layers->selection != nullptr) {
      space.selection = batch.layers->selection;
    }
    if (batch.layers->first_values != nullptr) {
      space.first_values.data = batch.layers->first_values;
    }
  }

  const DeviceScope scope(*device_);
  INLAY_RETURN_IF_ERROR(ropes_.Fill(batch, *device, space.angles, stream));
  const bool embeds = batch.layers == nullptr || batch.layers->first == 0;
  INLAY_RETURN_IF_ERROR(Begin(*device, embeds, space, stream));
  // On other devices the plans have it.
  const bool compiles = pattern_.any() && batch.device == nullptr;
  AttentionMask pattern;
  if (compiles) {
    INLAY_ASSIGN_OR_RETURN(pattern, CompilePattern(batch));
  }
  std::vector<AttentionMask> reaches;
  if (!reaches_.empty() && batch.device == nullptr) {
    INLAY_ASSIGN_OR_RETURN(reaches, CompileReaches(batch));
  }
  return ForwardLayers(
      {batch, *device, stream, space.angles, space.scratch, space.kernel,
       compiles ? &pattern : nullptr, reaches, space.per_layer, space.selection,
       space.layer_input, space.first_values},
      space);
}

absl::StatusOr<ExpertFetchCounts> Decoder::ReadExpertCounts(
    Stream& stream) const {
  ExpertFetchCounts sum;
  for (const ExpertFetchCounts* counts : expert_counts_) {
    ExpertFetchCounts one;
    INLAY_RETURN_IF_ERROR(device_->Copy(&one, counts, sizeof(one), stream));
    INLAY_RETURN_IF_ERROR(stream.Synchronize());
    sum.steps += one.steps;
    sum.hits += one.hits;
    sum.fetches += one.fetches;
    sum.direct += one.direct;
  }
  return sum;
}

}  // namespace inlay
