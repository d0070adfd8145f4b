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
  gates.bound = spec.decay_bound;
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
  if (!build.fused) return absl::OkStatus();
  auto decode =
      build.kernels.Choose("decode_delta", DecodeDeltaTable(),
                           DecodeDeltaDesc{conv_.desc, unit_.desc, gates_.desc,
                                           rule_.desc, gated_norm_.desc});
  if (decode.ok()) decode_ = *std::move(decode);
  return absl::OkStatus();
}

absl::Status DeltaBlock::LoadVectors(const DeltaSpec& spec, ModelBuild& build) {
  WeightLoader& weights = build.weights;
  std::vector<int64_t> widths = spec.conv_widths;
  if (widths.empty()) {
    widths = {spec.key_width(), spec.key_width(), spec.value_width()};
  }
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
                             spec.key_length / root);
  std::fill_n(lengths.begin(), spec.key_width(),
              1.0f / static_cast<float>(spec.key_dim));
  INLAY_ASSIGN_OR_RETURN(lengths_, weights.Constants(lengths));
  return absl::OkStatus();
}

absl::Status DeltaBlock::LoadInput(const DeltaSpec& spec, const Norm& norm,
                                   ModelBuild& build) {
  std::vector<LinearSpec> layers;
  const bool ordered = !spec.qkvz_order.empty() || !spec.ba_order.empty();
  const auto append = [&](absl::Span<const LinearSpec> specs,
                          absl::Span<const ColumnRun> order) {
    const int64_t first = raw_width_;
    for (const LinearSpec& layer : specs) {
      layers.push_back(layer);
      raw_width_ += layer.n;
    }
    const ColumnRun all = {0, static_cast<int32_t>(raw_width_ - first)};
    if (order.empty()) order = {&all, 1};
    for (const ColumnRun& run : order) {
      width_ += run.count;
      if (!ordered) continue;
      order_.push_back({static_cast<int32_t>(first) + run.first, run.count});
    }
  };
  const auto widen = [&](const std::vector<LinearSpec>& pair,
                         std::optional<Widened>& widened) -> absl::Status {
    if (pair.empty()) return absl::OkStatus();
    widened.emplace().first = width_;
    append({pair.data(), 1}, {});
    INLAY_ASSIGN_OR_RETURN(
        widened->layer,
        Linear::Create(pair.back(), LinearOutput::kActivation, build));
    return absl::OkStatus();
  };
  append(spec.qkvz, spec.qkvz_order);
  INLAY_RETURN_IF_ERROR(widen(spec.low_rank_z, wide_z_));
  INLAY_RETURN_IF_ERROR(widen(spec.low_rank_a, wide_a_));
  // Last, as what is behind a few heads begins where vectors cannot.
  first_b_ = width_;
  append(spec.ba, spec.ba_order);
  INLAY_ASSIGN_OR_RETURN(input_,
                         InputLinear::Create(layers, norm, nullptr, build));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> DeltaBlock::Create(
    const DeltaSpec& spec, const Norm& norm, const KvStateView& state,
    ModelBuild& build) {
  auto block = std::make_unique<DeltaBlock>();
  block->key_width_ = spec.key_width();
  block->value_width_ = spec.value_width();
  block->decay_width_ = spec.decay_width();
  block->activation_ = build.activation;
  block->epsilon_ = spec.norm.epsilon;
  block->length_epsilon_ = kLengthEpsilon / static_cast<float>(spec.key_dim);
  block->state_ = LayerState(state, ConvFloats(spec));
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  INLAY_RETURN_IF_ERROR(block->LoadInput(spec, norm, build));
  INLAY_RETURN_IF_ERROR(block->LoadVectors(spec, build));
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

DeltaBlock::Scratch DeltaBlock::Place(Arena& arena, int64_t tokens) const {
  // Rows begin where vectors can.
  constexpr int64_t kColumns = 64;
  const auto take = [&](int64_t width) {
    const int64_t room = (width + kColumns - 1) / kColumns * kColumns;
    return ColumnSlice(arena.TakeMatrix(tokens, room, activation_), 0, width);
  };
  const int64_t conv_width = conv_.desc.channels;
  const int64_t heads = rule_.desc.num_heads;
  Scratch scratch;
  const TensorView raw =
      take(std::max(conv_width, order_.empty() ? 0 : raw_width_));
  if (!order_.empty()) scratch.raw = ColumnSlice(raw, 0, raw_width_);
  scratch.mixed = ColumnSlice(raw, 0, conv_width);
  scratch.projected = take(width_);
  scratch.b = ColumnSlice(scratch.projected, first_b_, heads);
  scratch.z = wide_z_.has_value()
                  ? take(value_width_)
                  : ColumnSlice(scratch.projected, conv_width, value_width_);
  scratch.a = wide_a_.has_value() ? take(decay_width_)
                                  : ColumnSlice(scratch.projected,
                                                first_b_ + heads, decay_width_);
  const bool in_place = activation_ == DType::kF32;
  scratch.decay = in_place
                      ? scratch.a
                      : arena.TakeMatrix(tokens, decay_width_, DType::kF32);
  scratch.beta =
      in_place ? scratch.b : arena.TakeMatrix(tokens, heads, DType::kF32);
  return scratch;
}

size_t DeltaBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t DeltaBlock::KernelBytes(int64_t tokens, int64_t) const {
  size_t bytes =
      std::max({input_.KernelBytes(tokens), output_.KernelBytes(tokens),
                rule_.WorkspaceBytes(tokens)});
  for (const std::optional<Widened>* widened : {&wide_z_, &wide_a_}) {
    if (!widened->has_value()) continue;
    bytes = std::max(bytes, (*widened)->layer.KernelBytes(tokens));
  }
  return bytes;
}

absl::Status DeltaBlock::Widen(const Step& step,
                               const std::optional<Widened>& widened,
                               const Scratch& scratch,
                               const TensorView& y) const {
  if (!widened.has_value()) return absl::OkStatus();
  const TensorView low =
      ColumnSlice(scratch.projected, widened->first, widened->layer.desc().k);
  return widened->layer.Forward(low, {}, y, step.kernel_workspace, step.stream);
}

TensorView DeltaBlock::InputsOf(const Step& step, int64_t tokens) const {
  Arena arena(step.scratch);
  return Projected(Place(arena, tokens));
}

TensorView DeltaBlock::MixedOf(const Step& step, int64_t tokens) const {
  Arena arena(step.scratch);
  return Mixed(Place(arena, tokens));
}

absl::Status DeltaBlock::Begin(const Step& step, const BlockInput& x) const {
  return input_.ForwardSideBySide(step, x, InputsOf(step, x.hidden.rows()));
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
  unit.epsilon = length_epsilon_;
  return unit_.Run(unit, step.stream);
}

absl::Status DeltaBlock::Recur(const Step& step, const Scratch& scratch) const {
  StateGatesParams gates;
  gates.x = scratch.a;
  gates.b = scratch.b;
  gates.decay = scratch.decay;
  gates.beta = scratch.beta;
  gates.bias = dt_bias_;
  gates.a_log = a_log_;
  INLAY_RETURN_IF_ERROR(gates_.Run(gates, step.stream));
  LinearAttentionParams rule;
  rule.q = ColumnSlice(scratch.mixed, 0, key_width_);
  rule.k = ColumnSlice(scratch.mixed, key_width_, key_width_);
  rule.v = rule.y = Mixed(scratch);
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
  return gated_norm_.Run(norm, step.stream);
}

absl::Status DeltaBlock::MixAtOnce(const Step& step,
                                   const Scratch& scratch) const {
  DecodeDeltaParams params;
  params.x = ColumnSlice(scratch.projected, 0, conv_.desc.channels);
  params.taps = taps_;
  params.conv_state = state_.Conv(step);
  params.lengths = lengths_;
  params.length_epsilon = length_epsilon_;
  params.a = scratch.a;
  params.b = scratch.b;
  params.bias = dt_bias_;
  params.a_log = a_log_;
  params.state = state_.Matrices(step);
  params.z = scratch.z;
  params.norm = norm_;
  params.norm_epsilon = epsilon_;
  params.y = Mixed(scratch);
  return decode_.Run(params, step.stream);
}

absl::Status DeltaBlock::Mix(const Step& step, int64_t tokens) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, tokens);
  if (!order_.empty()) {
    ColumnsParams params;
    params.x = scratch.raw;
    params.runs = order_;
    params.y = scratch.projected;
    INLAY_RETURN_IF_ERROR(columns_.Run(params, step.stream));
  }
  INLAY_RETURN_IF_ERROR(Widen(step, wide_z_, scratch, scratch.z));
  INLAY_RETURN_IF_ERROR(Widen(step, wide_a_, scratch, scratch.a));
  if (decode_.row != nullptr &&
      step.device.states.longest <= kDecodeDeltaTokens) {
    return MixAtOnce(step, scratch);
  }
  INLAY_RETURN_IF_ERROR(Convolve(step, scratch));
  return Recur(step, scratch);
}

absl::Status DeltaBlock::Forward(const Step& step, const BlockInput& x,
                                 const TensorView& residual,
                                 const TensorView& y) const {
  const int64_t tokens = x.hidden.rows();
  INLAY_RETURN_IF_ERROR(Begin(step, x));
  INLAY_RETURN_IF_ERROR(Mix(step, tokens));
  return output_.Forward(MixedOf(step, tokens), residual, y,
                         step.kernel_workspace, step.stream);
}

}  // namespace inlay
