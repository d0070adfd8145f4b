#include "core/model/layers/gated_input.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> GatedInput::Create(
    const InputGateSpec& spec, std::unique_ptr<Sublayer> part,
    ModelBuild& build) {
  auto gated = std::make_unique<GatedInput>();
  INLAY_ASSIGN_OR_RETURN(
      gated->low_, Linear::Create(spec.low, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      gated->high_,
      Linear::Create(spec.high, LinearOutput::kActivation, build));
  ActivationDesc silu;
  silu.width = spec.low.n;
  silu.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gated->silu_,
      build.kernels.Choose("activation", ActivationTable(), silu));
  GatedNormDesc multiply;
  multiply.width = spec.high.n;
  multiply.normalise = false;
  multiply.gate = GateFunction::kSigmoid;
  multiply.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gated->multiply_,
      build.kernels.Choose("gated_norm", GatedNormTable(), multiply));
  gated->part_ = std::move(part);
  return std::unique_ptr<Sublayer>(std::move(gated));
}

GatedInput::Scratch GatedInput::Place(Arena& arena, int64_t tokens) const {
  Scratch scratch;
  scratch.low = arena.TakeMatrix(tokens, low_.outputs(), silu_.desc.activation);
  scratch.gate =
      arena.TakeMatrix(tokens, high_.outputs(), silu_.desc.activation);
  return scratch;
}

size_t GatedInput::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return std::max(arena.used(), part_->ScratchBytes(tokens));
}

size_t GatedInput::KernelBytes(int64_t tokens, int64_t sequences) const {
  return std::max({low_.KernelBytes(tokens), high_.KernelBytes(tokens),
                   part_->KernelBytes(tokens, sequences)});
}

absl::Status GatedInput::Forward(const Step& step, const BlockInput& x,
                                 const TensorView& residual,
                                 const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(low_.Forward(x.normalised, {}, scratch.low,
                                     step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(silu_.Run({scratch.low, scratch.low}, step.stream));
  INLAY_RETURN_IF_ERROR(high_.Forward(scratch.low, {}, scratch.gate,
                                      step.kernel_workspace, step.stream));
  GatedNormParams gate;
  gate.x = gate.y = x.normalised;
  gate.z = scratch.gate;
  INLAY_RETURN_IF_ERROR(multiply_.Run(gate, step.stream));
  return part_->Forward(step, {Norm::None(), x.normalised, x.normalised},
                        residual, y);
}

}  // namespace inlay
