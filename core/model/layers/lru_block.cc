#include "core/model/layers/lru_block.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

ShortConvDesc ConvOf(const LruSpec& spec, DType activation) {
  ShortConvDesc desc;
  desc.channels = spec.width;
  desc.num_taps = spec.num_taps;
  desc.activation = activation;
  return desc;
}

RgLruDesc LruOf(const LruSpec& spec, DType activation) {
  return {spec.width, activation};
}

// -8 softplus of what is learned.
float LruRate(float learned) {
  const double x = learned;
  return static_cast<float>(
      -8.0 * (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))));
}

}  // namespace

int64_t LruBlock::ConvFloats(const LruSpec& spec) {
  return ShortConvStateFloats(ConvOf(spec, DType::kF32));
}

int64_t LruBlock::LruFloats(const LruSpec& spec) {
  return RgLruStateFloats(LruOf(spec, DType::kF32));
}

absl::Status LruBlock::LoadLayers(const LruSpec& spec, const Norm& norm,
                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(input_, InputLinear::Create({spec.input, spec.gate},
                                                     norm, nullptr, build));
  // Exponents of decays and arguments of sigmoids: float32, whatever layers
  // hand on.
  INLAY_ASSIGN_OR_RETURN(
      input_gate_,
      GroupedLinear::Create(spec.input_gates, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(recurrence_gate_,
                         GroupedLinear::Create(spec.recurrence_gates,
                                               LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return absl::OkStatus();
}

absl::Status LruBlock::LoadVectors(const LruSpec& spec, ModelBuild& build) {
  WeightLoader& weights = build.weights;
  INLAY_ASSIGN_OR_RETURN(
      taps_, weights.Taps({{spec.conv + ".weight", width_}}, spec.num_taps));
  INLAY_ASSIGN_OR_RETURN(conv_bias_, weights.Vector(spec.conv + ".bias", width_,
                                                    VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      rates_, weights.Mapped(spec.rates, width_, VectorKind::kBias, LruRate));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> LruBlock::Create(
    const LruSpec& spec, const Norm& norm, const KvStateView& state,
    ModelBuild& build) {
  auto block = std::make_unique<LruBlock>();
  block->width_ = spec.width;
  block->activation_ = build.activation;
  block->state_ = LayerState(state, ConvFloats(spec));
  INLAY_ASSIGN_OR_RETURN(block->conv_,
                         build.kernels.Choose("short_conv", ShortConvTable(),
                                              ConvOf(spec, build.activation)));
  INLAY_ASSIGN_OR_RETURN(block->lru_,
                         build.kernels.Choose("rg_lru", RgLruTable(),
                                              LruOf(spec, build.activation)));
  INLAY_RETURN_IF_ERROR(block->LoadLayers(spec, norm, build));
  INLAY_RETURN_IF_ERROR(block->LoadVectors(spec, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

LruBlock::Scratch LruBlock::Place(Arena& arena, int64_t tokens) const {
  // Rows begin where vectors can; those that gates read and give are dense.
  constexpr int64_t kColumns = 64;
  const int64_t both = 2 * width_;
  Scratch scratch;
  scratch.projected = ColumnSlice(
      arena.TakeMatrix(tokens, (both + kColumns - 1) / kColumns * kColumns,
                       activation_),
      0, both);
  scratch.mixed = arena.TakeMatrix(tokens, width_, activation_);
  scratch.input = arena.TakeMatrix(tokens, width_, DType::kF32);
  scratch.recurrence = arena.TakeMatrix(tokens, width_, DType::kF32);
  // Of both, one after the other.
  scratch.groups = arena.Take(std::max(input_gate_.ScratchBytes(tokens),
                                       recurrence_gate_.ScratchBytes(tokens)));
  return scratch;
}

size_t LruBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t LruBlock::KernelBytes(int64_t tokens, int64_t) const {
  return std::max({input_.KernelBytes(tokens), input_gate_.KernelBytes(tokens),
                   recurrence_gate_.KernelBytes(tokens),
                   output_.KernelBytes(tokens)});
}

absl::Status LruBlock::Convolve(const Step& step,
                                const Scratch& scratch) const {
  ShortConvParams conv;
  conv.x = ColumnSlice(scratch.projected, 0, width_);
  conv.taps = taps_;
  conv.bias = conv_bias_;
  conv.state = state_.Conv(step);
  conv.y = scratch.mixed;
  return conv_.Run(conv, step.stream);
}

absl::Status LruBlock::Recur(const Step& step, const Scratch& scratch) const {
  INLAY_RETURN_IF_ERROR(
      input_gate_.Forward(scratch.mixed, scratch.input, scratch.groups, step));
  INLAY_RETURN_IF_ERROR(recurrence_gate_.Forward(
      scratch.mixed, scratch.recurrence, scratch.groups, step));
  RgLruParams lru;
  lru.x = lru.y = scratch.mixed;
  lru.input = scratch.input;
  lru.recurrence = scratch.recurrence;
  lru.z = ColumnSlice(scratch.projected, width_, width_);
  lru.rates = rates_;
  lru.state = state_.Matrices(step);
  return lru_.Run(lru, step.stream);
}

absl::Status LruBlock::Forward(const Step& step, const BlockInput& x,
                               const TensorView& residual,
                               const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(input_.ForwardSideBySide(step, x, scratch.projected));
  INLAY_RETURN_IF_ERROR(Convolve(step, scratch));
  INLAY_RETURN_IF_ERROR(Recur(step, scratch));
  return output_.Forward(scratch.mixed, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
