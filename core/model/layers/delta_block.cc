#include "core/model/layers/delta_block.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

// Added to the sum of squares of q and of k, by all who publish such models.
constexpr float kLengthEpsilon = 1e-6f;

ShortConvDesc ConvOf(const DeltaSpec& spec, DType activation) {
  ShortConvDesc desc;
  desc.channels = spec.conv_width();
  desc.num_taps = spec.num_taps;
  desc.silu = true;
  desc.activation = activation;
  return desc;
}

LinearAttentionDesc RuleOf(const DeltaSpec& spec, DType activation) {
  LinearAttentionDesc desc;
  desc.num_heads = spec.num_heads;
  desc.num_key_heads = spec.num_key_heads;
  desc.key_dim = spec.key_dim;
  desc.value_dim = spec.value_dim;
  desc.decay = spec.decays_channels ? StateDecay::kChannel : StateDecay::kHead;
  desc.delta = true;
  desc.activation = activation;
  return desc;
}

}  // namespace

int64_t DeltaBlock::ConvFloats(const DeltaSpec& spec) {
  return ShortConvStateFloats(ConvOf(spec, DType::kF32));
}

int64_t DeltaBlock::MatrixFloats(const DeltaSpec& spec) {
  return LinearAttentionStateFloats(RuleOf(spec, DType::kF32));
}

int64_t DeltaBlock::Projection::width() const {
  int64_t width = 0;
  for (const Linear& layer : layers) width += layer.outputs();
  return width;
}

size_t DeltaBlock::Projection::KernelBytes(int64_t tokens) const {
  size_t bytes = 0;
  for (const Linear& layer : layers) {
    bytes = std::max(bytes, layer.KernelBytes(tokens));
  }
  return bytes;
}

absl::StatusOr<DeltaBlock::Projection> DeltaBlock::Load(
    const std::vector<LinearSpec>& specs, const std::vector<ColumnRun>& order,
    ModelBuild& build) {
  Projection projection;
  projection.order = order;
  for (const LinearSpec& spec : specs) {
    INLAY_ASSIGN_OR_RETURN(
        projection.layers.emplace_back(),
        Linear::Create(spec, LinearOutput::kActivation, build));
  }
  return projection;
}

absl::Status DeltaBlock::ChooseKernels(const DeltaSpec& spec,
                                       ModelBuild& build) {
  LinearAttentionDesc desc = RuleOf(spec, build.activation);
  desc.batch_invariant = build.batch_invariant;
  INLAY_ASSIGN_OR_RETURN(
      rule_,
      build.kernels.Choose("linear_attention", LinearAttentionTable(), desc));
  INLAY_ASSIGN_OR_RETURN(conv_,
                         build.kernels.Choose("short_conv", ShortConvTable(),
                                              ConvOf(spec, build.activation)));
  INLAY_ASSIGN_OR_RETURN(columns_,
                         build.kernels.Choose("columns", ColumnsTable(),
                                              ColumnsDesc{build.activation}));
  StateGatesDesc gates;
  gates.num_heads = spec.num_heads;
  gates.channels = spec.decay_width() / spec.num_heads;
  gates.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gates_, build.kernels.Choose("state_gates", StateGatesTable(), gates));
  GatedNormDesc unit;
  unit.groups = int64_t{2} * spec.num_key_heads;
  unit.width = spec.key_dim;
  unit.gate = GateFunction::kNone;
  unit.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      unit_, build.kernels.Choose("gated_norm", GatedNormTable(), unit));
  GatedNormDesc norm;
  norm.groups = spec.num_heads;
  norm.width = spec.value_dim;
  norm.gate = spec.gate;
  norm.shared_weight = true;
  norm.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gated_norm_, build.kernels.Choose("gated_norm", GatedNormTable(), norm));
  return absl::OkStatus();
}

absl::Status DeltaBlock::LoadVectors(const DeltaSpec& spec, ModelBuild& build) {
  WeightLoader& weights = build.weights;
  const int64_t widths[] = {spec.key_width(), spec.key_width(),
                            spec.value_width()};
  std::vector<WeightLoader::Rows> convs;
  for (size_t i = 0; i < spec.convs.size(); ++i) {
    convs.push_back({spec.convs[i] + ".weight",
                     spec.convs.size() == 1 ? spec.conv_width() : widths[i]});
  }
  INLAY_ASSIGN_OR_RETURN(taps_, weights.Taps(convs, spec.num_taps));
  INLAY_ASSIGN_OR_RETURN(
      a_log_, weights.Vector(spec.a_log, spec.num_heads, VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      dt_bias_,
      weights.Vector(spec.dt_bias, spec.decay_width(), VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      norm_, weights.Vector(spec.norm.name + ".weight", spec.value_dim,
                            VectorKind::kScale));
  // x / sqrt(sum + e) = x / sqrt(d) / sqrt(mean + e / d); q is divided by
  // sqrt(d) besides.
  const float root = std::sqrt(static_cast<float>(spec.key_dim));
  std::vector<float> lengths(static_cast<size_t>(2 * spec.key_width()),
                             1.0f / root);
  std::fill_n(lengths.begin(), spec.key_width(),
              1.0f / static_cast<float>(spec.key_dim));
  INLAY_ASSIGN_OR_RETURN(lengths_, weights.Constants(lengths));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> DeltaBlock::Create(
    const DeltaSpec& spec, const KvStateView& state, ModelBuild& build) {
  auto block = std::make_unique<DeltaBlock>();
  block->key_width_ = spec.key_width();
  block->value_width_ = spec.value_width();
  block->decay_width_ = spec.decay_width();
  block->activation_ = build.activation;
  block->epsilon_ = spec.norm.epsilon;
  block->state_ = LayerState(state, ConvFloats(spec));
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  INLAY_ASSIGN_OR_RETURN(block->qkvz_, Load(spec.qkvz, spec.qkvz_order, build));
  INLAY_ASSIGN_OR_RETURN(block->ba_, Load(spec.ba, spec.ba_order, build));
  INLAY_ASSIGN_OR_RETURN(block->low_rank_z_, Load(spec.low_rank_z, {}, build));
  INLAY_ASSIGN_OR_RETURN(block->low_rank_a_, Load(spec.low_rank_a, {}, build));
  INLAY_RETURN_IF_ERROR(block->LoadVectors(spec, build));
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

DeltaBlock::Scratch DeltaBlock::Place(Arena& arena, int64_t tokens) const {
  const auto take = [&](int64_t width) {
    return arena.TakeMatrix(tokens, width, activation_);
  };
  const int64_t conv_width = conv_.desc.channels;
  Scratch scratch;
  scratch.raw =
      take(std::max({conv_width, qkvz_.order.empty() ? 0 : qkvz_.width(),
                     ba_.order.empty() ? 0 : ba_.width()}));
  scratch.mixed = MatrixView(scratch.raw.data, activation_, tokens, conv_width);
  int64_t low = 0;
  for (const Projection* pair : {&low_rank_z_, &low_rank_a_}) {
    if (!pair->layers.empty()) {
      low = std::max(low, pair->layers.front().outputs());
    }
  }
  scratch.low = take(low);
  scratch.projected = take(qkvz_.width());
  scratch.b = take(ba_.width());
  scratch.z = low_rank_z_.layers.empty()
                  ? ColumnSlice(scratch.projected, conv_width, value_width_)
                  : take(value_width_);
  const int64_t heads = rule_.desc.num_heads;
  scratch.a = low_rank_a_.layers.empty()
                  ? ColumnSlice(scratch.b, heads, decay_width_)
                  : take(decay_width_);
  const bool in_place = activation_ == DType::kF32;
  scratch.decay = in_place
                      ? scratch.a
                      : arena.TakeMatrix(tokens, decay_width_, DType::kF32);
  scratch.beta = in_place ? ColumnSlice(scratch.b, 0, heads)
                          : arena.TakeMatrix(tokens, heads, DType::kF32);
  return scratch;
}

size_t DeltaBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t DeltaBlock::KernelBytes(int64_t tokens, int64_t) const {
  size_t bytes =
      std::max(output_.KernelBytes(tokens), rule_.WorkspaceBytes(tokens));
  for (const Projection* projection :
       {&qkvz_, &ba_, &low_rank_z_, &low_rank_a_}) {
    bytes = std::max(bytes, projection->KernelBytes(tokens));
  }
  return bytes;
}

absl::Status DeltaBlock::Project(const Step& step, const TensorView& x,
                                 const Projection& projection,
                                 const TensorView& raw,
                                 const TensorView& y) const {
  const bool in_order = projection.order.empty();
  const TensorView whole =
      in_order ? y
               : MatrixView(raw.data, raw.dtype, x.rows(), projection.width());
  int64_t first = 0;
  for (const Linear& layer : projection.layers) {
    INLAY_RETURN_IF_ERROR(
        layer.Forward(x, {}, ColumnSlice(whole, first, layer.outputs()),
                      step.kernel_workspace, step.stream));
    first += layer.outputs();
  }
  if (in_order) return absl::OkStatus();
  ColumnsParams params;
  params.x = whole;
  params.runs = projection.order;
  params.y = y;
  return columns_.Run(params, step.stream);
}

absl::Status DeltaBlock::ProjectLow(const Step& step, const TensorView& x,
                                    const Projection& pair,
                                    const TensorView& low,
                                    const TensorView& y) const {
  if (pair.layers.empty()) return absl::OkStatus();
  const TensorView between =
      MatrixView(low.data, low.dtype, x.rows(), pair.layers.front().outputs());
  INLAY_RETURN_IF_ERROR(pair.layers.front().Forward(
      x, {}, between, step.kernel_workspace, step.stream));
  return pair.layers.back().Forward(between, {}, y, step.kernel_workspace,
                                    step.stream);
}

absl::Status DeltaBlock::ProjectAll(const Step& step, const TensorView& x,
                                    const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(
      Project(step, x, qkvz_, scratch.raw, scratch.projected));
  INLAY_RETURN_IF_ERROR(Project(step, x, ba_, scratch.raw, scratch.b));
  INLAY_RETURN_IF_ERROR(
      ProjectLow(step, x, low_rank_z_, scratch.low, scratch.z));
  return ProjectLow(step, x, low_rank_a_, scratch.low, scratch.a);
}

// And brings q and k to their lengths.
absl::Status DeltaBlock::Convolve(const Step& step,
                                  const Scratch& scratch) const {
  ShortConvParams conv;
  conv.x = ColumnSlice(scratch.projected, 0, conv_.desc.channels);
  conv.y = scratch.mixed;
  conv.taps = taps_;
  conv.state = state_.Conv(step);
  INLAY_RETURN_IF_ERROR(conv_.Run(conv, step.stream));
  GatedNormParams unit;
  unit.x = unit.y = ColumnSlice(scratch.mixed, 0, 2 * key_width_);
  unit.weight = lengths_;
  unit.epsilon = kLengthEpsilon / static_cast<float>(unit_.desc.width);
  return unit_.Run(unit, step.stream);
}

absl::StatusOr<TensorView> DeltaBlock::Mix(const Step& step,
                                           const Scratch& scratch) const {
  StateGatesParams gates;
  gates.x = scratch.a;
  gates.b = ColumnSlice(scratch.b, 0, rule_.desc.num_heads);
  gates.decay = scratch.decay;
  gates.beta = scratch.beta;
  gates.bias = dt_bias_;
  gates.a_log = a_log_;
  INLAY_RETURN_IF_ERROR(gates_.Run(gates, step.stream));
  LinearAttentionParams rule;
  rule.q = ColumnSlice(scratch.mixed, 0, key_width_);
  rule.k = ColumnSlice(scratch.mixed, key_width_, key_width_);
  rule.v = rule.y = ColumnSlice(scratch.mixed, 2 * key_width_, value_width_);
  rule.decay = gates.decay;
  rule.beta = gates.beta;
  rule.state = state_.Matrices(step);
  rule.workspace = step.kernel_workspace;
  INLAY_RETURN_IF_ERROR(rule_.Run(rule, step.stream));
  GatedNormParams norm;
  norm.x = norm.y = rule.y;
  norm.z = scratch.z;
  norm.weight = norm_;
  norm.epsilon = epsilon_;
  INLAY_RETURN_IF_ERROR(gated_norm_.Run(norm, step.stream));
  return rule.y;
}

absl::Status DeltaBlock::Forward(const Step& step, const BlockInput& x,
                                 const TensorView& residual,
                                 const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(ProjectAll(step, x.normalised, scratch));
  INLAY_RETURN_IF_ERROR(Convolve(step, scratch));
  INLAY_ASSIGN_OR_RETURN(const TensorView mixed, Mix(step, scratch));
  return output_.Forward(mixed, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
