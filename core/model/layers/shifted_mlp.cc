#include "core/model/layers/shifted_mlp.h"

#include <utility>

#include "core/model/layers/mlp.h"
#include "memory/status.h"

namespace inlay {

int64_t ShiftedMlp::ShiftFloats(const ShiftedMlpSpec& spec) {
  return TokenShift::StateFloats(spec.mlp.input.front().k);
}

absl::StatusOr<std::unique_ptr<Sublayer>> ShiftedMlp::Create(
    const ShiftedMlpSpec& spec, const KvStateView& state, ModelBuild& build) {
  auto shifted = std::make_unique<ShiftedMlp>();
  const int64_t width = spec.mlp.input.front().k;
  shifted->activation_ = build.activation;
  shifted->state_ = LayerState(state, ShiftFloats(spec));
  INLAY_ASSIGN_OR_RETURN(shifted->shift_,
                         TokenShift::Create({spec.mix}, 1, width, build));
  INLAY_ASSIGN_OR_RETURN(shifted->mlp_,
                         Mlp::Create(spec.mlp, Norm::None(), build));
  return std::unique_ptr<Sublayer>(std::move(shifted));
}

// The MLP's is behind what it reads.
size_t ShiftedMlp::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  arena.TakeMatrix(tokens, shift_.width(), activation_);
  return arena.used() + mlp_->ScratchBytes(tokens);
}

size_t ShiftedMlp::KernelBytes(int64_t tokens, int64_t sequences) const {
  return mlp_->KernelBytes(tokens, sequences);
}

absl::Status ShiftedMlp::Forward(const Step& step, const BlockInput& x,
                                 const TensorView& residual,
                                 const TensorView& y) const {
  Arena arena(step.scratch);
  const TensorView mixed =
      arena.TakeMatrix(x.hidden.rows(), shift_.width(), activation_);
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(
      shift_.Forward(0, state_.Conv(step), x.normalised, mixed, step.stream));
  Step rest = step;
  rest.scratch = step.scratch + arena.used();
  return mlp_->Forward(rest, {Norm::None(), mixed, mixed}, residual, y);
}

}  // namespace inlay
