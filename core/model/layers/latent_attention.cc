#include "core/model/layers/latent_attention.h"

#include <algorithm>
#include <utility>

#include "core/model/model.h"
#include "kernels/attention/attention_expand.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Absorbed queries of a tile, and as much again for what they give: small
// beside the weights, and tokens enough for every thread.
constexpr int64_t kTileBytes = 8 << 20;
constexpr int64_t kLeastTile = 16;

// A matrix of all heads side by side as a row a token and head.
TensorView RowsOfHeads(const TensorView& matrix, int64_t heads) {
  TensorView view = matrix;
  view.dims = {matrix.rows() * heads, matrix.cols() / heads};
  view.row_stride_bytes = matrix.row_stride_bytes / static_cast<size_t>(heads);
  return view;
}

// What of `all` is of tokens [first, first + count), counted from there. A
// query sees what it saw before.
absl::Span<const AttentionSequence> CutOut(
    absl::Span<const AttentionSequence> all, int64_t first, int64_t count,
    AttentionSequence* cut) {
  size_t pieces = 0;
  for (const AttentionSequence& sequence : all) {
    const int64_t end = int64_t{sequence.q_begin} + sequence.q_len;
    const int64_t from = std::max<int64_t>(sequence.q_begin, first);
    const int64_t to = std::min(end, first + count);
    if (from >= to) continue;
    AttentionSequence& piece = cut[pieces++] = sequence;
    piece.q_begin = static_cast<int32_t>(from - first);
    piece.q_len = static_cast<int32_t>(to - from);
    piece.kv_len = static_cast<int32_t>(sequence.kv_len - (end - to));
  }
  return {cut, pieces};
}

}  // namespace

std::vector<KvLayerShape> LatentAttention::KvLayers(
    const LatentAttentionSpec& spec, int64_t max_positions) {
  std::vector<KvLayerShape> layers;
  if (spec.kv_source < 0) layers.push_back({1, spec.row_dim(), 0, spec.rank});
  if (!spec.indexer.has_value()) return layers;
  for (const KvLayerShape& shape :
       Indexer::KvLayers(*spec.indexer, max_positions)) {
    layers.push_back(shape);
  }
  return layers;
}

absl::StatusOr<std::unique_ptr<Sublayer>> LatentAttention::Create(
    const LatentAttentionSpec& spec, const KvPlace& rows,
    absl::Span<const KvPlace> index, ModelBuild& build) {
  auto block = std::make_unique<LatentAttention>();
  block->on_cpu_ = build.on_cpu();
  block->num_heads_ = spec.num_heads;
  block->rank_ = spec.rank;
  block->key_dim_ = spec.key_dim;
  block->rope_dim_ = spec.rope_dim;
  block->value_dim_ = spec.value_dim;
  block->rope_ = spec.rope;
  block->query_factor_ = spec.query_factor;
  block->reads_other_kv_ = spec.kv_source >= 0;
  block->activation_ = build.activation;
  block->kv_ = rows.view;
  block->kv_group_ = rows.group;
  INLAY_RETURN_IF_ERROR(block->Load(spec, build));
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  if (spec.indexer.has_value()) {
    INLAY_ASSIGN_OR_RETURN(block->indexer_,
                           Indexer::Create(spec, index, build));
  }
  return std::unique_ptr<Sublayer>(std::move(block));
}

absl::Status LatentAttention::ChooseKernels(const LatentAttentionSpec& spec,
                                            ModelBuild& build) {
  AttentionDesc attention;
  attention.num_heads = spec.num_heads;
  attention.num_kv_heads = 1;
  attention.head_dim = spec.row_dim();
  attention.value_dim = spec.rank;
  attention.kv = kv_.dtype;
  attention.activation = build.activation;
  attention.scale = spec.scale;
  attention.selects = spec.selects;
  attention.mix.block = spec.select_block;
  attention.mix.own_if_partial = spec.select_block > 1;
  INLAY_ASSIGN_OR_RETURN(
      attention_,
      build.kernels.Choose("attention", AttentionTable(), attention));
  if (!on_cpu_) {
    AttentionPlanShape shape =
        MakeAttentionPlanShape(*attention_.row, attention, kv_.block_size,
                               build.kernels.device().num_sms);
    INLAY_RETURN_IF_ERROR(ChooseExpanded(spec, build));
    if (expanded_.row != nullptr) LetExpand(expanded_.desc.dims(), shape);
    cut_ = build.AddCut({shape, kv_group_});
    cut_shape_ = build.cuts[cut_].shape;
  }
  KvWriteDesc write;
  write.num_kv_heads = 1;
  write.head_dim = spec.row_dim();
  write.kv = kv_.dtype;
  write.activation = build.activation;
  write.keys_only = true;
  INLAY_ASSIGN_OR_RETURN(
      kv_write_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  if (spec.rope_dim > 0) {
    INLAY_ASSIGN_OR_RETURN(copy_, Norm::Copy(spec.rope_dim, build.activation,
                                             build.activation, build));
  }
  INLAY_ASSIGN_OR_RETURN(scale_heads_,
                         HeadScale::Create(spec.head_scale, spec.num_heads,
                                           spec.query_dim(), build));
  if (spec.query_factor >= 0) {
    INLAY_ASSIGN_OR_RETURN(
        scale_queries_,
        RowScale::Create(int64_t{spec.num_heads} * spec.query_dim(), build));
  }
  if (spec.gate.has_value()) {
    GatedNormDesc gate;
    gate.width = spec.value_dim;
    gate.groups = spec.num_heads;
    gate.group_gates = spec.gate->n == spec.num_heads;
    gate.normalise = false;
    gate.gate = GateFunction::kSigmoid;
    gate.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(
        apply_gate_,
        build.kernels.Choose("gated_norm", GatedNormTable(), gate));
  }
  if (spec.rope < 0) return absl::OkStatus();
  RopeDesc rope;
  rope.num_heads = 1;
  rope.head_dim = rope.rotary_dim = spec.rope_dim;
  rope.style = spec.rope_style;
  rope.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(key_rope_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  rope.num_heads = spec.num_heads;
  rope.head_dim = spec.query_dim();
  rope.first = spec.key_dim;
  INLAY_ASSIGN_OR_RETURN(query_rope_,
                         build.kernels.Choose("rope", RopeTable(), rope));
  return absl::OkStatus();
}

absl::Status LatentAttention::ChooseExpanded(const LatentAttentionSpec& spec,
                                             ModelBuild& build) {
  // Another row for attention is asked for to be seen.
  if (build.batch_invariant || attention_.row->name != "cuda_latent" ||
      has_sinks_ || spec.select_block > 1 ||
      heads_.KeyType() != heads_.ValueType()) {
    return absl::OkStatus();
  }
  ExpandedAttentionDesc desc;
  desc.num_heads = spec.num_heads;
  desc.rank = spec.rank;
  desc.key_dim = spec.key_dim;
  desc.rope_dim = spec.rope_dim;
  desc.value_dim = spec.value_dim;
  desc.block_size = kv_.block_size;
  desc.kv = kv_.dtype;
  desc.weight = heads_.KeyType();
  desc.activation = build.activation;
  desc.scale = spec.scale;
  auto chosen = build.kernels.Choose("expanded_attention",
                                     ExpandedAttentionTable(), desc);
  if (chosen.ok()) {
    expanded_ = *std::move(chosen);
  } else if (build.kernels.IsForced("expanded_attention")) {
    return std::move(chosen).status();
  }
  return absl::OkStatus();
}

absl::Status LatentAttention::Load(const LatentAttentionSpec& spec,
                                   ModelBuild& build) {
  for (const LinearSpec& layer : spec.query) {
    INLAY_ASSIGN_OR_RETURN(
        query_.emplace_back(),
        Linear::Create(layer, LinearOutput::kActivation, build));
  }
  const auto norm_of = [&](const NormSpec& norm, int64_t width) {
    return Norm::Create(norm, width, build.activation, build.activation, build);
  };
  if (spec.query.size() > 1) {
    low_rank_ = spec.query.front().n;
    INLAY_ASSIGN_OR_RETURN(query_norm_, norm_of(spec.query_norm, low_rank_));
  }
  reads_both_ = spec.reads_both;
  INLAY_DCHECK(!reads_both_ || spec.query.size() > 1);
  if (!reads_other_kv_) {
    INLAY_ASSIGN_OR_RETURN(
        down_, Linear::Create(spec.down, LinearOutput::kActivation, build));
    INLAY_ASSIGN_OR_RETURN(norm_, norm_of(spec.norm, spec.rank));
  }
  INLAY_ASSIGN_OR_RETURN(heads_, LatentHeads::Create(spec, build));
  if (spec.gate.has_value()) {
    INLAY_ASSIGN_OR_RETURN(
        gate_, Linear::Create(*spec.gate, LinearOutput::kActivation, build));
  }
  has_sinks_ = !spec.sinks.empty();
  if (has_sinks_) {
    INLAY_ASSIGN_OR_RETURN(
        sinks_,
        build.weights.Vector(spec.sinks, spec.num_heads, VectorKind::kBias));
  }
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  observer_ = build.input_observer;
  up_name_ = spec.up.name;
  return absl::OkStatus();
}

int64_t LatentAttention::TileTokens(int64_t tokens) const {
  if (!on_cpu_) return tokens;
  const int64_t bytes = static_cast<int64_t>(RowBytes(
      activation_, static_cast<size_t>(num_heads_ * (rank_ + rope_dim_))));
  return std::min(tokens, std::max(kLeastTile, kTileBytes / bytes));
}

LatentAttention::Scratch LatentAttention::Place(Arena& arena,
                                                int64_t tokens) const {
  const auto take = [&](int64_t rows, int64_t width) {
    return arena.TakeMatrix(rows, width, activation_);
  };
  Scratch scratch;
  if (query_.size() > 1) {
    scratch.low_query = take(tokens, low_rank_ * (reads_both_ ? 2 : 1));
  }
  scratch.query = take(tokens, query_.back().outputs());
  if (!reads_other_kv_) scratch.row = take(tokens, down_.outputs());
  scratch.head = take(tokens, int64_t{num_heads_} * value_dim_);
  if (gate_.has_value()) scratch.gate = take(tokens, gate_->outputs());
  const int64_t tile = TileTokens(tokens);
  scratch.absorbed = take(tile, int64_t{num_heads_} * (rank_ + rope_dim_));
  scratch.context = take(tile, int64_t{num_heads_} * rank_);
  if (on_cpu_) {
    scratch.sequences = reinterpret_cast<AttentionSequence*>(
        arena.Take(static_cast<size_t>(tile) * sizeof(AttentionSequence)));
  }
  scratch.heads = arena.Take(heads_.ScratchBytes(tile));
  if (indexer_.has_value()) {
    scratch.indexer = arena.Take(indexer_->ScratchBytes(tokens));
  }
  return scratch;
}

size_t LatentAttention::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t LatentAttention::KernelBytes(int64_t tokens, int64_t sequences) const {
  const int64_t tile = TileTokens(tokens);
  // Where keys are selected, plans have a sequence a query.
  if (attention_.desc.selects > 0) sequences = tokens;
  size_t bytes = output_.KernelBytes(tokens);
  if (!reads_other_kv_) bytes = std::max(bytes, down_.KernelBytes(tokens));
  for (const Linear& layer : query_) {
    bytes = std::max(bytes, layer.KernelBytes(tokens));
  }
  if (gate_.has_value()) bytes = std::max(bytes, gate_->KernelBytes(tokens));
  if (indexer_.has_value()) {
    bytes = std::max(bytes, indexer_->KernelBytes(tokens));
  }
  return std::max(
      {bytes, heads_.KernelBytes(tile),
       on_cpu_ ? attention_.WorkspaceBytes(tile)
               : AttentionWorkspaceBytes(cut_shape_, sequences, tokens)});
}

absl::Status LatentAttention::Project(const Step& step, const TensorView& x,
                                      const Scratch& scratch) const {
  const auto run = [&](const Linear& layer, const TensorView& from,
                       const TensorView& to) {
    return layer.Forward(from, {}, to, step.kernel_workspace, step.stream);
  };
  if (!reads_other_kv_) {
    INLAY_RETURN_IF_ERROR(run(down_, x, scratch.row));
    const TensorView latent = ColumnSlice(scratch.row, 0, rank_);
    INLAY_RETURN_IF_ERROR(norm_.Forward(latent, latent, step.stream));
    if (observer_ != nullptr) observer_->OnInput(up_name_, latent);
  }
  if (gate_.has_value() && !reads_both_) {
    INLAY_RETURN_IF_ERROR(run(*gate_, x, scratch.gate));
  }
  if (query_.size() == 1) return run(query_.front(), x, scratch.query);
  const TensorView& low = scratch.low_query;
  const TensorView normalised = ColumnSlice(low, 0, low_rank_);
  const TensorView raw =
      reads_both_ ? ColumnSlice(low, low_rank_, low_rank_) : normalised;
  INLAY_RETURN_IF_ERROR(run(query_.front(), x, raw));
  INLAY_RETURN_IF_ERROR(query_norm_.Forward(raw, normalised, step.stream));
  if (gate_.has_value() && reads_both_) {
    INLAY_RETURN_IF_ERROR(run(*gate_, low, scratch.gate));
  }
  return run(query_.back(), low, scratch.query);
}

absl::Status LatentAttention::Rotate(const Step& step,
                                     const Scratch& scratch) const {
  if (rope_ < 0) return absl::OkStatus();
  const RopeAngles& angles = step.angles[static_cast<size_t>(rope_)];
  RopeParams params;
  params.cos = angles.cos;
  params.sin = angles.sin;
  params.x = scratch.query;
  INLAY_RETURN_IF_ERROR(query_rope_.Run(params, step.stream));
  if (reads_other_kv_) return absl::OkStatus();
  params.x = ColumnSlice(scratch.row, rank_, rope_dim_);
  return key_rope_.Run(params, step.stream);
}

absl::Status LatentAttention::ScaleQueries(const Step& step,
                                           const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(scale_heads_.Forward(step, scratch.query));
  if (query_factor_ < 0) return absl::OkStatus();
  const RopeAngles& factors = step.angles[static_cast<size_t>(query_factor_)];
  return scale_queries_.Forward(scratch.query, factors.cos, factors.sin,
                                step.stream);
}

absl::Status LatentAttention::Absorb(const Step& step, int64_t first,
                                     const TensorView& absorbed,
                                     const Scratch& scratch) const {
  const TensorView query =
      RowsOfHeads(scratch.query.RowSlice(first, absorbed.rows()), num_heads_);
  const TensorView rows = RowsOfHeads(absorbed, num_heads_);
  INLAY_RETURN_IF_ERROR(heads_.Absorb(ColumnSlice(query, 0, key_dim_),
                                      ColumnSlice(rows, 0, rank_),
                                      scratch.heads, step));
  if (rope_dim_ == 0) return absl::OkStatus();
  return copy_.Forward(ColumnSlice(query, key_dim_, rope_dim_),
                       ColumnSlice(rows, rank_, rope_dim_), step.stream);
}

absl::Status LatentAttention::MakeValues(const Step& step, int64_t first,
                                         const TensorView& context,
                                         const Scratch& scratch) const {
  return heads_.Values(
      RowsOfHeads(context, num_heads_),
      RowsOfHeads(scratch.head.RowSlice(first, context.rows()), num_heads_),
      scratch.heads, step);
}

absl::Status LatentAttention::AttendExpanded(const Step& step,
                                             const KvLayerView& kv,
                                             const Scratch& scratch) const {
  const AttentionPlan& plan = step.device.plans[cut_];
  for (const AttentionTokenRange& range : plan.item_tokens) {
    INLAY_RETURN_IF_ERROR(
        Absorb(step, range.begin,
               scratch.absorbed.RowSlice(range.begin, range.count), scratch));
  }
  if (plan.run_items) {
    AttentionParams items;
    items.q = scratch.absorbed;
    items.out = scratch.context;
    items.kv = kv;
    items.plan = &plan;
    if (attention_.desc.selects > 0) items.selection = step.selection;
    items.workspace = step.kernel_workspace;
    INLAY_RETURN_IF_ERROR(attention_.Run(items, step.stream));
  }
  for (const AttentionTokenRange& range : plan.item_tokens) {
    INLAY_RETURN_IF_ERROR(MakeValues(
        step, range.begin, scratch.context.RowSlice(range.begin, range.count),
        scratch));
  }
  ExpandedAttentionParams tiles;
  tiles.q = scratch.query;
  tiles.out = scratch.head;
  tiles.kv = kv;
  tiles.keys = heads_.KeyMatrices();
  tiles.values = heads_.ValueMatrices();
  tiles.plan = &plan;
  tiles.workspace = step.kernel_workspace;
  return expanded_.Run(tiles, step.stream);
}

absl::Status LatentAttention::Attend(const Step& step, const KvLayerView& kv,
                                     int64_t first, int64_t count,
                                     const Scratch& scratch) const {
  const TensorView absorbed = scratch.absorbed.RowSlice(0, count);
  INLAY_RETURN_IF_ERROR(Absorb(step, first, absorbed, scratch));

  AttentionParams params;
  params.q = absorbed;
  params.out = scratch.context.RowSlice(0, count);
  params.kv = kv;
  params.sinks = sinks_;
  if (on_cpu_) {
    params.sequences = CutOut(step.batch.SequencesOf(kv_group_), first, count,
                              scratch.sequences);
  } else {
    params.plan = &step.device.plans[cut_];
  }
  if (const int selects = attention_.desc.selects; selects > 0) {
    params.selection =
        step.selection + first * (selects / attention_.desc.mix.block);
  }
  params.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(attention_.Run(params, step.stream));
  return MakeValues(step, first, params.out, scratch);
}

absl::Status LatentAttention::Forward(const Step& step, const BlockInput& x,
                                      const TensorView& residual,
                                      const TensorView& y) const {
  Arena arena(step.scratch);
  const int64_t tokens = x.hidden.rows();
  const Scratch scratch = Place(arena, tokens);
  KvLayerView kv = kv_;
  kv.base = step.batch.kv_base;
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(Project(step, x.normalised, scratch));
  INLAY_RETURN_IF_ERROR(Rotate(step, scratch));
  INLAY_RETURN_IF_ERROR(ScaleQueries(step, scratch));
  if (!reads_other_kv_) {
    KvWriteParams write;
    write.k = scratch.row;
    write.kv = kv;
    write.slots = step.device.SlotsOf(kv_group_);
    INLAY_RETURN_IF_ERROR(kv_write_.Run(write, step.stream));
  }
  if (indexer_.has_value()) {
    const TensorView low = query_.size() > 1
                               ? ColumnSlice(scratch.low_query, 0, low_rank_)
                               : scratch.low_query;
    INLAY_RETURN_IF_ERROR(
        indexer_->Forward(step, x.normalised, low, scratch.indexer));
  }
  const bool expands =
      expanded_.row != nullptr && step.device.plans[cut_].num_tiles > 0;
  if (expands) INLAY_RETURN_IF_ERROR(AttendExpanded(step, kv, scratch));
  const int64_t tile = TileTokens(tokens);
  for (int64_t first = expands ? tokens : 0; first < tokens; first += tile) {
    INLAY_RETURN_IF_ERROR(
        Attend(step, kv, first, std::min(tile, tokens - first), scratch));
  }
  if (gate_.has_value()) {
    GatedNormParams gate;
    gate.x = gate.y = scratch.head;
    gate.z = scratch.gate;
    INLAY_RETURN_IF_ERROR(apply_gate_.Run(gate, step.stream));
  }
  return output_.Forward(scratch.head, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
