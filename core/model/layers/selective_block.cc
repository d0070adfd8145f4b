#include "core/model/layers/selective_block.h"

#include <algorithm>
#include <cmath>

#include "memory/status.h"

namespace inlay {
namespace {

ShortConvDesc ConvOf(const SelectiveSpec& spec, DType activation) {
  ShortConvDesc desc;
  desc.channels = spec.width;
  desc.num_taps = spec.num_taps;
  desc.silu = true;
  desc.activation = activation;
  return desc;
}

SelectiveScanDesc ScanOf(const SelectiveSpec& spec, DType activation) {
  SelectiveScanDesc desc;
  desc.channels = spec.width;
  desc.state_size = spec.state_size;
  desc.activation = activation;
  return desc;
}

// What A is stored as the logarithm of its negative of.
float RateOf(float a_log) { return -std::exp(a_log); }

}  // namespace

int64_t SelectiveBlock::ConvFloats(const SelectiveSpec& spec) {
  return ShortConvStateFloats(ConvOf(spec, DType::kF32));
}

int64_t SelectiveBlock::ScanFloats(const SelectiveSpec& spec) {
  return SelectiveScanStateFloats(ScanOf(spec, DType::kF32));
}

absl::Status SelectiveBlock::ChooseKernels(const SelectiveSpec& spec,
                                           ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(conv_,
                         build.kernels.Choose("short_conv", ShortConvTable(),
                                              ConvOf(spec, build.activation)));
  INLAY_ASSIGN_OR_RETURN(
      scan_, build.kernels.Choose("selective_scan", SelectiveScanTable(),
                                  ScanOf(spec, build.activation)));
  if (spec.b_norm.kind == NormKind::kNone) return absl::OkStatus();
  GatedNormDesc norms;
  norms.groups = 2;
  norms.width = spec.state_size;
  norms.gate = GateFunction::kNone;
  norms.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      bc_, build.kernels.Choose("gated_norm", GatedNormTable(), norms));
  return absl::OkStatus();
}

absl::Status SelectiveBlock::LoadLayers(const SelectiveSpec& spec,
                                        const Norm& norm, ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(
      input_, InputLinear::Create({spec.input}, norm, nullptr, build));
  INLAY_ASSIGN_OR_RETURN(
      low_, Linear::Create(spec.low, LinearOutput::kActivation, build));
  // Exponents of decays: float32, whatever layers hand on.
  INLAY_ASSIGN_OR_RETURN(
      steps_, Linear::Create(spec.steps, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

absl::Status SelectiveBlock::LoadVectors(const SelectiveSpec& spec,
                                         ModelBuild& build) {
  WeightLoader& weights = build.weights;
  const std::string& prefix = spec.prefix;
  INLAY_ASSIGN_OR_RETURN(
      taps_,
      weights.Taps({{prefix + ".conv1d.weight", spec.width}}, spec.num_taps));
  if (spec.conv_bias) {
    INLAY_ASSIGN_OR_RETURN(
        conv_bias_,
        weights.Vector(prefix + ".conv1d.bias", spec.width, VectorKind::kBias));
  }
  INLAY_ASSIGN_OR_RETURN(
      rates_, weights.TurnedFloats(prefix + ".A_log", spec.width,
                                   spec.state_size, VectorKind::kBias, RateOf));
  INLAY_ASSIGN_OR_RETURN(
      skip_, weights.Vector(prefix + ".D", spec.width, VectorKind::kScale));
  return absl::OkStatus();
}

absl::Status SelectiveBlock::LoadNorms(const SelectiveSpec& spec,
                                       ModelBuild& build) {
  epsilon_ = spec.b_norm.epsilon;
  INLAY_ASSIGN_OR_RETURN(dt_norm_,
                         Norm::Create(spec.dt_norm, spec.rank, build.activation,
                                      build.activation, build));
  if (spec.b_norm.name.empty()) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(bc_norm_,
                         build.weights.StackedVector(
                             {{spec.b_norm.name + ".weight", spec.state_size},
                              {spec.c_norm.name + ".weight", spec.state_size}},
                             VectorKind::kScale));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> SelectiveBlock::Create(
    const SelectiveSpec& spec, const Norm& norm, const KvStateView& state,
    ModelBuild& build) {
  auto block = std::make_unique<SelectiveBlock>();
  block->width_ = spec.width;
  block->rank_ = spec.rank;
  block->activation_ = build.activation;
  block->state_ = LayerState(state, ConvFloats(spec));
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  INLAY_RETURN_IF_ERROR(block->LoadLayers(spec, norm, build));
  INLAY_RETURN_IF_ERROR(block->LoadVectors(spec, build));
  INLAY_RETURN_IF_ERROR(block->LoadNorms(spec, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

SelectiveBlock::Scratch SelectiveBlock::Place(Arena& arena,
                                              int64_t tokens) const {
  // Rows begin where vectors can.
  constexpr int64_t kColumns = 64;
  const auto take = [&](int64_t width, DType dtype) {
    const int64_t room = (width + kColumns - 1) / kColumns * kColumns;
    return ColumnSlice(arena.TakeMatrix(tokens, room, dtype), 0, width);
  };
  Scratch scratch;
  scratch.projected = take(2 * width_, activation_);
  scratch.mixed = take(width_, activation_);
  scratch.low = take(low_.outputs(), activation_);
  scratch.steps = take(width_, DType::kF32);
  return scratch;
}

size_t SelectiveBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t SelectiveBlock::KernelBytes(int64_t tokens, int64_t) const {
  return std::max({input_.KernelBytes(tokens), low_.KernelBytes(tokens),
                   steps_.KernelBytes(tokens), output_.KernelBytes(tokens)});
}

absl::Status SelectiveBlock::Convolve(const Step& step,
                                      const Scratch& scratch) const {
  ShortConvParams conv;
  conv.x = ColumnSlice(scratch.projected, 0, width_);
  conv.taps = taps_;
  conv.bias = conv_bias_;
  conv.state = state_.Conv(step);
  conv.y = scratch.mixed;
  return conv_.Run(conv, step.stream);
}

absl::Status SelectiveBlock::Select(const Step& step,
                                    const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(low_.Forward(scratch.mixed, {}, scratch.low,
                                     step.kernel_workspace, step.stream));
  const TensorView dt = ColumnSlice(scratch.low, 0, rank_);
  if (bc_.row != nullptr) {
    INLAY_RETURN_IF_ERROR(dt_norm_.Forward(dt, dt, step.stream));
    GatedNormParams norms;
    norms.x = norms.y =
        ColumnSlice(scratch.low, rank_, 2 * int64_t{scan_.desc.state_size});
    norms.weight = bc_norm_;
    norms.epsilon = epsilon_;
    INLAY_RETURN_IF_ERROR(bc_.Run(norms, step.stream));
  }
  return steps_.Forward(dt, {}, scratch.steps, step.kernel_workspace,
                        step.stream);
}

absl::Status SelectiveBlock::Scan(const Step& step,
                                  const Scratch& scratch) const {
  const int64_t size = scan_.desc.state_size;
  SelectiveScanParams scan;
  scan.x = scan.y = scratch.mixed;
  scan.step = scratch.steps;
  scan.b = ColumnSlice(scratch.low, rank_, size);
  scan.c = ColumnSlice(scratch.low, rank_ + size, size);
  scan.z = ColumnSlice(scratch.projected, width_, width_);
  scan.rates = rates_;
  scan.skip = skip_;
  scan.state = state_.Matrices(step);
  return scan_.Run(scan, step.stream);
}

absl::Status SelectiveBlock::Forward(const Step& step, const BlockInput& x,
                                     const TensorView& residual,
                                     const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(input_.Forward(step, x, {scratch.projected}));
  INLAY_RETURN_IF_ERROR(Convolve(step, scratch));
  INLAY_RETURN_IF_ERROR(Select(step, scratch));
  INLAY_RETURN_IF_ERROR(Scan(step, scratch));
  return output_.Forward(scratch.mixed, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
