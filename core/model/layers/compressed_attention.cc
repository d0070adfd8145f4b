#include "core/model/layers/compressed_attention.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

// A matrix of all heads side by side, dense, as a row a token and head.
TensorView HeadRows(const TensorView& matrix, int64_t heads) {
  return MatrixView(matrix.data, matrix.dtype, matrix.rows() * heads,
                    matrix.cols() / heads);
}

RopeDesc TrailingRope(int num_heads, int head_dim, int rope_dim,
                      const ModelBuild& build) {
  RopeDesc rope;
  rope.num_heads = num_heads;
  rope.head_dim = head_dim;
  rope.rotary_dim = rope_dim;
  rope.first = head_dim - rope_dim;
  rope.style = RopeStyle::kInterleaved;
  rope.activation = build.activation;
  return rope;
}

}  // namespace

std::vector<KvLayerShape> CompressedAttention::KvLayers(
    const CompressedAttentionSpec& spec, int64_t max_positions) {
  const int64_t window = spec.window < max_positions ? spec.window : 0;
  const bool has_keys = spec.compressor.has_value();
  std::vector<KvLayerShape> layers = {
      {1, spec.head_dim, window, spec.head_dim, 1, has_keys}};
  const auto add = [&](const CompressorSpec& compressor, bool counts_rows) {
    layers.push_back(KvCompressor::TokenLayer(compressor, max_positions));
    layers.push_back(KvCompressor::KeyLayer(compressor, counts_rows));
  };
  if (has_keys) add(*spec.compressor, true);
  if (spec.index.has_value()) add(spec.index->compressor, false);
  return layers;
}

absl::StatusOr<std::unique_ptr<Sublayer>> CompressedAttention::Create(
    const CompressedAttentionSpec& spec, absl::Span<const KvPlace> places,
    ModelBuild& build) {
  auto block = std::make_unique<CompressedAttention>();
  block->num_heads_ = spec.num_heads;
  block->rope_ = spec.rope;
  block->rope_back_ = spec.rope_back;
  block->activation_ = build.activation;
  block->on_cpu_ = build.on_cpu();
  block->near_ = places[0];
  if (spec.compressor.has_value()) {
    block->far_ = places[2];
    INLAY_ASSIGN_OR_RETURN(
        block->compressor_,
        KvCompressor::Create(*spec.compressor, places[1], places[2],
                             spec.compressed_rope, spec.rope_dim, build));
  }
  if (spec.index.has_value()) {
    INLAY_RETURN_IF_ERROR(block->CreateIndex(spec, places, build));
  }
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  INLAY_RETURN_IF_ERROR(block->Load(spec, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

absl::Status CompressedAttention::CreateIndex(
    const CompressedAttentionSpec& spec, absl::Span<const KvPlace> places,
    ModelBuild& build) {
  const CompressedIndexSpec& index = *spec.index;
  const CompressorSpec& compressor = index.compressor;
  Index& made = index_.emplace();
  made.keys = places[4];
  // What it selects are slots of its own keys, which are taken for those of the
  // compressed ones.
  INLAY_DCHECK(places[4].group == far_.group &&
               places[4].view.block_size == far_.view.block_size);
  INLAY_ASSIGN_OR_RETURN(
      made.compressor,
      KvCompressor::Create(compressor, places[3], places[4],
                           spec.compressed_rope, spec.rope_dim, build));
  INLAY_ASSIGN_OR_RETURN(
      made.query,
      Linear::Create(index.query, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      made.weights, Linear::Create(index.weights, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      made.rope,
      build.kernels.Choose("rope", RopeTable(),
                           TrailingRope(index.num_heads, compressor.head_dim,
                                        spec.rope_dim, build)));
  IndexerDesc select;
  select.num_heads = index.num_heads;
  select.head_dim = compressor.head_dim;
  select.top_k = spec.most;
  select.max_keys = index.max_keys;
  select.key_tokens = compressor.row_tokens;
  select.kv = made.keys.view.dtype;
  select.activation = build.activation;
  INLAY_RETURN_IF_ERROR(ValidateIndexer(select));
  INLAY_ASSIGN_OR_RETURN(
      made.select, build.kernels.Choose("indexer", IndexerTable(), select));
  return absl::OkStatus();
}

absl::Status CompressedAttention::ChooseKernels(
    const CompressedAttentionSpec& spec, ModelBuild& build) {
  KvWriteDesc write;
  write.num_kv_heads = 1;
  write.head_dim = spec.head_dim;
  write.kv = near_.view.dtype;
  write.activation = build.activation;
  write.keys_only = true;
  INLAY_ASSIGN_OR_RETURN(
      kv_write_, build.kernels.Choose("kv_write", KvWriteTable(), write));
  INLAY_ASSIGN_OR_RETURN(
      query_rope_,
      build.kernels.Choose(
          "rope", RopeTable(),
          TrailingRope(spec.num_heads, spec.head_dim, spec.rope_dim, build)));
  INLAY_ASSIGN_OR_RETURN(
      key_rope_, build.kernels.Choose(
                     "rope", RopeTable(),
                     TrailingRope(1, spec.head_dim, spec.rope_dim, build)));
  if (compressor_.has_value()) {
    KvSelectDesc select;
    select.window = spec.window;
    select.row_tokens = spec.compressor->row_tokens;
    select.most = spec.most;
    select.is_chosen = index_.has_value();
    INLAY_RETURN_IF_ERROR(ValidateKvSelect(select));
    INLAY_ASSIGN_OR_RETURN(
        select_, build.kernels.Choose("kv_select", KvSelectTable(), select));
  }
  return ChooseAttention(spec, build);
}

absl::Status CompressedAttention::ChooseAttention(
    const CompressedAttentionSpec& spec, ModelBuild& build) {
  AttentionDesc attention;
  attention.num_heads = spec.num_heads;
  attention.num_kv_heads = 1;
  attention.head_dim = attention.value_dim = spec.head_dim;
  attention.kv = near_.view.dtype;
  attention.activation = build.activation;
  attention.scale = spec.scale;
  if (has_keys()) {
    attention.selects = select_.desc.selects();
    attention.mix = select_.desc.mix();
  } else {
    attention.window = spec.window;
  }
  INLAY_ASSIGN_OR_RETURN(
      attention_,
      build.kernels.Choose("attention", AttentionTable(), attention));
  if (on_cpu_) return absl::OkStatus();
  const int block_size =
      has_keys() ? near_.view.InRows().block_size : near_.view.block_size;
  cut_ = build.AddCut(
      {MakeAttentionPlanShape(*attention_.row, attention, block_size,
                              build.kernels.device().num_sms),
       near_.group});
  cut_shape_ = build.cuts[cut_].shape;
  return absl::OkStatus();
}

absl::Status CompressedAttention::Load(const CompressedAttentionSpec& spec,
                                       ModelBuild& build) {
  const auto linear = [&](const LinearSpec& layer) {
    return Linear::Create(layer, LinearOutput::kActivation, build);
  };
  const auto norm_of = [&](const NormSpec& norm, int64_t width) {
    return Norm::Create(norm, width, build.activation, build.activation, build);
  };
  INLAY_ASSIGN_OR_RETURN(low_query_, linear(spec.low_query));
  INLAY_ASSIGN_OR_RETURN(low_query_norm_,
                         norm_of(spec.low_query_norm, spec.low_query.n));
  INLAY_ASSIGN_OR_RETURN(query_, linear(spec.query));
  INLAY_ASSIGN_OR_RETURN(query_norm_, norm_of(spec.query_norm, spec.head_dim));
  INLAY_ASSIGN_OR_RETURN(key_, linear(spec.key));
  INLAY_ASSIGN_OR_RETURN(key_norm_, norm_of(spec.key_norm, spec.head_dim));
  INLAY_ASSIGN_OR_RETURN(
      sinks_,
      build.weights.Vector(spec.sinks, spec.num_heads, VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      groups_, GroupedLinear::Create(spec.group_outputs,
                                     LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

CompressedAttention::Scratch CompressedAttention::Place(Arena& arena,
                                                        int64_t tokens) const {
  const auto take = [&](int64_t width) {
    return arena.TakeMatrix(tokens, width, activation_);
  };
  const auto slots = [&](int64_t width) {
    return reinterpret_cast<int32_t*>(
        arena.Take(static_cast<size_t>(tokens * width) * sizeof(int32_t)));
  };
  Scratch scratch;
  scratch.low_query = take(low_query_.outputs());
  scratch.query = take(query_.outputs());
  scratch.key = take(key_.outputs());
  scratch.context = take(query_.outputs());
  scratch.grouped = take(groups_.outputs());
  scratch.groups = arena.Take(groups_.ScratchBytes(tokens));
  if (!has_keys()) return scratch;
  scratch.selection = slots(select_.desc.selects());
  size_t bytes = compressor_->ScratchBytes(tokens);
  if (index_.has_value()) {
    bytes = std::max(bytes, index_->compressor.ScratchBytes(tokens));
    scratch.index_query = take(index_->query.outputs());
    scratch.index_weights =
        arena.TakeMatrix(tokens, index_->weights.outputs(), DType::kF32);
    scratch.chosen = slots(select_.desc.most);
  }
  scratch.compressor = arena.Take(bytes);
  return scratch;
}

size_t CompressedAttention::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t CompressedAttention::KernelBytes(int64_t tokens,
                                        int64_t sequences) const {
  size_t bytes = groups_.KernelBytes(tokens);
  for (const Linear* layer : {&low_query_, &query_, &key_, &output_}) {
    bytes = std::max(bytes, layer->KernelBytes(tokens));
  }
  if (compressor_.has_value()) {
    bytes = std::max(bytes, compressor_->KernelBytes(tokens));
  }
  if (index_.has_value()) {
    bytes = std::max({bytes, index_->compressor.KernelBytes(tokens),
                      index_->query.KernelBytes(tokens),
                      index_->weights.KernelBytes(tokens),
                      index_->select.WorkspaceBytes(tokens)});
  }
  // Where keys are selected, plans have a sequence a query.
  if (has_keys()) sequences = tokens;
  return std::max(
      bytes, on_cpu_ ? attention_.WorkspaceBytes(tokens)
                     : AttentionWorkspaceBytes(cut_shape_, sequences, tokens));
}

absl::Status CompressedAttention::Rotate(const Op<RopeDesc, RopeParams>& op,
                                         int rope, const TensorView& x,
                                         const Step& step) const {
  RopeParams params;
  params.x = x;
  params.cos = step.angles[static_cast<size_t>(rope)].cos;
  params.sin = step.angles[static_cast<size_t>(rope)].sin;
  return op.Run(params, step.stream);
}

absl::Status CompressedAttention::Project(const Step& step, const TensorView& x,
                                          const Scratch& scratch) const {
  const auto run = [&](const Linear& layer, const TensorView& from,
                       const TensorView& to) {
    return layer.Forward(from, {}, to, step.kernel_workspace, step.stream);
  };
  const TensorView& low = scratch.low_query;
  INLAY_RETURN_IF_ERROR(run(low_query_, x, low));
  INLAY_RETURN_IF_ERROR(low_query_norm_.Forward(low, low, step.stream));
  INLAY_RETURN_IF_ERROR(run(query_, low, scratch.query));
  const TensorView heads = HeadRows(scratch.query, num_heads_);
  INLAY_RETURN_IF_ERROR(query_norm_.Forward(heads, heads, step.stream));
  INLAY_RETURN_IF_ERROR(run(key_, x, scratch.key));
  INLAY_RETURN_IF_ERROR(
      key_norm_.Forward(scratch.key, scratch.key, step.stream));
  INLAY_RETURN_IF_ERROR(Rotate(query_rope_, rope_, scratch.query, step));
  INLAY_RETURN_IF_ERROR(Rotate(key_rope_, rope_, scratch.key, step));
  KvWriteParams write;
  write.k = scratch.key;
  write.kv = near_.view;
  write.kv.base = step.batch.kv_base;
  write.slots = step.device.SlotsOf(near_.group);
  return kv_write_.Run(write, step.stream);
}

absl::Status CompressedAttention::SelectIndexed(const Step& step,
                                                const TensorView& x,
                                                const Scratch& scratch) const {
  const Index& index = *index_;
  INLAY_RETURN_IF_ERROR(index.compressor.Forward(step, x, scratch.compressor));
  INLAY_RETURN_IF_ERROR(
      index.query.Forward(scratch.low_query, {}, scratch.index_query,
                          step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(index.weights.Forward(
      x, {}, scratch.index_weights, step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(Rotate(index.rope, rope_, scratch.index_query, step));
  IndexerParams params;
  params.q = scratch.index_query;
  params.weights = scratch.index_weights;
  params.kv = index.keys.view;
  params.kv.base = step.batch.kv_base;
  params.sequences = step.batch.SequencesOf(index.keys.group);
  params.selection = scratch.chosen;
  params.workspace = step.kernel_workspace;
  params.plan = step.device.IndexOf(index.keys.group);
  return index.select.Run(params, step.stream);
}

absl::Status CompressedAttention::SelectKeys(const Step& step,
                                             const TensorView& x,
                                             const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(compressor_->Forward(step, x, scratch.compressor));
  if (index_.has_value()) {
    INLAY_RETURN_IF_ERROR(SelectIndexed(step, x, scratch));
  }
  KvSelectParams params;
  params.tokens = x.rows();
  params.near = near_.view;
  params.far = far_.view;
  params.near_sequences = step.batch.SequencesOf(near_.group);
  params.far_sequences = step.batch.SequencesOf(far_.group);
  params.chosen = scratch.chosen;
  params.selection = scratch.selection;
  params.near_plan = step.device.IndexOf(near_.group);
  params.far_plan = step.device.IndexOf(far_.group);
  return select_.Run(params, step.stream);
}

absl::Status CompressedAttention::Attend(const Step& step,
                                         const Scratch& scratch) const {
  AttentionParams params;
  params.q = scratch.query;
  params.out = scratch.context;
  params.kv = has_keys() ? near_.view.InRows() : near_.view;
  params.kv.base = step.batch.kv_base;
  if (on_cpu_) {
    params.sequences = step.batch.SequencesOf(near_.group);
  } else {
    params.plan = &step.device.plans[cut_];
  }
  params.sinks = sinks_;
  params.selection = scratch.selection;
  params.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(attention_.Run(params, step.stream));
  return Rotate(query_rope_, rope_back_, scratch.context, step);
}

absl::Status CompressedAttention::Forward(const Step& step, const BlockInput& x,
                                          const TensorView& residual,
                                          const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(Project(step, x.normalised, scratch));
  if (has_keys()) {
    INLAY_RETURN_IF_ERROR(SelectKeys(step, x.normalised, scratch));
  }
  INLAY_RETURN_IF_ERROR(Attend(step, scratch));
  INLAY_RETURN_IF_ERROR(
      groups_.Forward(scratch.context, scratch.grouped, scratch.groups, step));
  return output_.Forward(scratch.grouped, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
