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
  desc.decay = spec.decays.empty() ? StateDecay::kNone : StateDecay::kHead;
  desc.feature_map = spec.feature_map;
  desc.normalised = spec.normalised;
  desc.epsilon = spec.normaliser_epsilon;
  desc.activation = activation;
  return desc;
}

}  // namespace

int64_t LightningBlock::MatrixFloats(const LightningSpec& spec) {
  return LinearAttentionStateFloats(AttentionDescOf(spec, DType::kF32));
}

absl::Status LightningBlock::ChooseKernels(const LightningSpec& spec,
                                           ModelBuild& build) {
  if (spec.activation.has_value()) {
    ActivationDesc map;
    map.function = *spec.activation;
    map.width = 3 * spec.width();
    map.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(
        map_, build.kernels.Choose("activation", ActivationTable(), map));
  }
  INLAY_ASSIGN_OR_RETURN(columns_,
                         build.kernels.Choose("columns", ColumnsTable(),
                                              ColumnsDesc{build.activation}));
  LinearAttentionDesc attention = AttentionDescOf(spec, build.activation);
  attention.batch_invariant = build.batch_invariant;
  INLAY_ASSIGN_OR_RETURN(
      attention_, build.kernels.Choose("linear_attention",
                                       LinearAttentionTable(), attention));
  const bool normalise = spec.norm.kind != NormKind::kNone;
  if (!normalise && !spec.gate.has_value()) return absl::OkStatus();
  GatedNormDesc gate;
  gate.width = spec.norm_heads ? spec.head_dim : spec.width();
  gate.groups = spec.norm_heads ? spec.num_heads : 1;
  gate.shared_weight = spec.norm_heads;
  gate.normalise = normalise;
  gate.gate =
      spec.gate.has_value() ? GateFunction::kSigmoid : GateFunction::kNone;
  gate.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gate_, build.kernels.Choose("gated_norm", GatedNormTable(), gate));
  return absl::OkStatus();
}

absl::Status LightningBlock::LoadWeights(const LightningSpec& spec,
                                         ModelBuild& build) {
  std::vector<const LinearSpec*> specs;
  for (const LinearSpec& layer : spec.qkv) specs.push_back(&layer);
  if (has_gate_) specs.push_back(&*spec.gate);
  std::vector<Linear> layers;
  for (const LinearSpec* layer : specs) {
    INLAY_ASSIGN_OR_RETURN(
        layers.emplace_back(),
        Linear::Create(*layer, LinearOutput::kActivation, build));
  }
  input_ = InputLinear::Over(std::move(layers));
  if (!spec.decays.empty()) {
    INLAY_ASSIGN_OR_RETURN(decays_, build.weights.Constants(spec.decays));
  }
  if (!spec.norm.name.empty()) {
    INLAY_ASSIGN_OR_RETURN(
        norm_,
        build.weights.Vector(spec.norm.name + ".weight",
                             spec.norm_heads ? spec.head_dim : spec.width(),
                             VectorKind::kScale));
  }
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> LightningBlock::Create(
    const LightningSpec& spec, const KvStateView& state, ModelBuild& build) {
  auto block = std::make_unique<LightningBlock>();
  block->width_ = spec.width();
  block->activation_ = build.activation;
  block->epsilon_ = spec.norm.epsilon;
  block->state_ = LayerState(state, 0);
  block->has_gate_ = spec.gate.has_value();
  for (int part = 0; part < 3 && spec.qkv.size() == 1; ++part) {
    for (int head = 0; head < spec.num_heads; ++head) {
      block->order_.push_back(
          {(3 * head + part) * spec.head_dim, spec.head_dim});
    }
  }
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  INLAY_RETURN_IF_ERROR(block->LoadWeights(spec, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

LightningBlock::Scratch LightningBlock::Place(Arena& arena,
                                              int64_t tokens) const {
  const auto take = [&](int64_t width) {
    return arena.TakeMatrix(tokens, width, activation_);
  };
  Scratch scratch;
  if (!order_.empty()) scratch.heads = take(3 * width_);
  scratch.qkv = take(3 * width_);
  scratch.q = ColumnSlice(scratch.qkv, 0, width_);
  scratch.k = ColumnSlice(scratch.qkv, width_, width_);
  scratch.v = ColumnSlice(scratch.qkv, 2 * width_, width_);
  if (has_gate_) scratch.gate = take(width_);
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

absl::Status LightningBlock::Project(const Step& step, const BlockInput& x,
                                     const Scratch& scratch) const {
  const TensorView joint[] = {scratch.heads, scratch.gate};
  const TensorView split[] = {scratch.q, scratch.k, scratch.v, scratch.gate};
  const auto outputs =
      order_.empty() ? absl::MakeConstSpan(split) : absl::MakeConstSpan(joint);
  INLAY_RETURN_IF_ERROR(
      input_.Forward(step, x, outputs.first(input_.layers().size())));
  if (map_.row != nullptr) {
    ActivationParams map;
    map.x = map.y = order_.empty() ? scratch.qkv : scratch.heads;
    INLAY_RETURN_IF_ERROR(map_.Run(map, step.stream));
  }
  if (order_.empty()) return absl::OkStatus();
  ColumnsParams columns;
  columns.x = scratch.heads;
  columns.runs = order_;
  columns.y = scratch.qkv;
  return columns_.Run(columns, step.stream);
}

absl::Status LightningBlock::Mix(const Step& step,
                                 const Scratch& scratch) const {
  LinearAttentionParams attention;
  attention.q = scratch.q;
  attention.k = scratch.k;
  attention.v = attention.y = scratch.v;
  if (decays_ != nullptr) {  // one row for all tokens
    attention.decay =
        MatrixView(reinterpret_cast<std::byte*>(const_cast<float*>(decays_)),
                   DType::kF32, scratch.v.rows(), attention_.desc.num_heads);
    attention.decay.row_stride_bytes = 0;
  }
  attention.state = state_.Matrices(step);
  attention.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(attention_.Run(attention, step.stream));
  if (gate_.row == nullptr) return absl::OkStatus();
  GatedNormParams gate;
  gate.x = gate.y = scratch.v;
  if (has_gate_) gate.z = scratch.gate;
  gate.weight = norm_;
  gate.epsilon = epsilon_;
  return gate_.Run(gate, step.stream);
}

absl::Status LightningBlock::Forward(const Step& step, const BlockInput& x,
                                     const TensorView& residual,
                                     const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(Project(step, x, scratch));
  INLAY_RETURN_IF_ERROR(Mix(step, scratch));
  return output_.Forward(scratch.v, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
