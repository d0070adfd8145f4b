#include "core/model/layers/lightning_block.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

LinearAttentionDesc AttentionDescOf(const LightningSpec& spec,
                                    DType activation) {
  LinearAttentionDesc desc;
  desc.num_heads = desc.num_key_heads = spec.num_heads;
  desc.key_dim = desc.value_dim = spec.head_dim;
  desc.decay = StateDecay::kHead;
  desc.activation = activation;
  return desc;
}

}  // namespace

int64_t LightningBlock::MatrixFloats(const LightningSpec& spec) {
  return LinearAttentionStateFloats(AttentionDescOf(spec, DType::kF32));
}

absl::Status LightningBlock::ChooseKernels(const LightningSpec& spec,
                                           ModelBuild& build) {
  ActivationDesc map;
  map.function = spec.activation;
  map.width = 3 * spec.width();
  map.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      map_, build.kernels.Choose("activation", ActivationTable(), map));
  INLAY_ASSIGN_OR_RETURN(columns_,
                         build.kernels.Choose("columns", ColumnsTable(),
                                              ColumnsDesc{build.activation}));
  LinearAttentionDesc attention = AttentionDescOf(spec, build.activation);
  attention.batch_invariant = build.batch_invariant;
  INLAY_ASSIGN_OR_RETURN(
      attention_, build.kernels.Choose("linear_attention",
                                       LinearAttentionTable(), attention));
  GatedNormDesc gate;
  gate.width = spec.width();
  gate.gate = GateFunction::kSigmoid;
  gate.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gate_, build.kernels.Choose("gated_norm", GatedNormTable(), gate));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> LightningBlock::Create(
    const LightningSpec& spec, const KvStateView& state, ModelBuild& build) {
  auto block = std::make_unique<LightningBlock>();
  block->width_ = spec.width();
  block->activation_ = build.activation;
  block->epsilon_ = spec.norm.epsilon;
  block->state_ = LayerState(state, 0);
  for (int part = 0; part < 3; ++part) {
    for (int head = 0; head < spec.num_heads; ++head) {
      block->order_.push_back(
          {(3 * head + part) * spec.head_dim, spec.head_dim});
    }
  }
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  std::vector<Linear> layers;
  for (const LinearSpec* layer : {&spec.qkv, &spec.gate}) {
    INLAY_ASSIGN_OR_RETURN(
        layers.emplace_back(),
        Linear::Create(*layer, LinearOutput::kActivation, build));
  }
  block->input_ = InputLinear::Over(std::move(layers));
  INLAY_ASSIGN_OR_RETURN(block->decays_, build.weights.Constants(spec.decays));
  INLAY_ASSIGN_OR_RETURN(
      block->norm_, build.weights.Vector(spec.norm.name + ".weight",
                                         spec.width(), VectorKind::kScale));
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

LightningBlock::Scratch LightningBlock::Place(Arena& arena,
                                              int64_t tokens) const {
  Scratch scratch;
  scratch.heads = arena.TakeMatrix(tokens, 3 * width_, activation_);
  const TensorView ordered = arena.TakeMatrix(tokens, 3 * width_, activation_);
  scratch.q = ColumnSlice(ordered, 0, width_);
  scratch.k = ColumnSlice(ordered, width_, width_);
  scratch.v = ColumnSlice(ordered, 2 * width_, width_);
  scratch.gate = arena.TakeMatrix(tokens, width_, activation_);
  return scratch;
}

size_t LightningBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t LightningBlock::KernelBytes(int64_t tokens, int64_t) const {
  return std::max({input_.KernelBytes(tokens), output_.KernelBytes(tokens),
                   attention_.WorkspaceBytes(tokens)});
}

absl::Status LightningBlock::Mix(const Step& step,
                                 const Scratch& scratch) const {
  ActivationParams map;
  map.x = map.y = scratch.heads;
  INLAY_RETURN_IF_ERROR(map_.Run(map, step.stream));
  ColumnsParams columns;
  columns.x = scratch.heads;
  columns.runs = order_;
  columns.y = scratch.q;
  columns.y.dims[1] = 3 * width_;
  INLAY_RETURN_IF_ERROR(columns_.Run(columns, step.stream));
  LinearAttentionParams attention;
  attention.q = scratch.q;
  attention.k = scratch.k;
  attention.v = attention.y = scratch.v;
  // One row for all tokens.
  attention.decay =
      MatrixView(reinterpret_cast<std::byte*>(const_cast<float*>(decays_)),
                 DType::kF32, scratch.v.rows(), attention_.desc.num_heads);
  attention.decay.row_stride_bytes = 0;
  attention.state = state_.Matrices(step);
  attention.workspace = step.kernel_workspace;
  return attention_.Run(attention, step.stream);
}

absl::Status LightningBlock::Forward(const Step& step, const BlockInput& x,
                                     const TensorView& residual,
                                     const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(input_.Forward(step, x, {scratch.heads, scratch.gate}));
  INLAY_RETURN_IF_ERROR(Mix(step, scratch));
  GatedNormParams gate;
  gate.x = gate.y = scratch.v;
  gate.z = scratch.gate;
  gate.weight = norm_;
  gate.epsilon = epsilon_;
  INLAY_RETURN_IF_ERROR(gate_.Run(gate, step.stream));
  return output_.Forward(scratch.v, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
