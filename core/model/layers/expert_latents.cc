#include "core/model/layers/expert_latents.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<ExpertLatents> ExpertLatents::Create(const MoeSpec& spec,
                                                    ModelBuild& build) {
  ExpertLatents latents;
  INLAY_DCHECK(spec.latent_down.has_value() && spec.latent_up.has_value() &&
               !spec.shared_gate.has_value());
  latents.width_ = spec.latent_down->n;
  latents.activation_ = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      latents.down_,
      Linear::Create(*spec.latent_down, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      latents.narrow_,
      Norm::Create({}, latents.width_, DType::kF32, build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      latents.up_,
      Linear::Create(*spec.latent_up, LinearOutput::kFloat, build));
  return latents;
}

size_t ExpertLatents::KernelBytes(int64_t tokens) const {
  return present()
             ? std::max(down_.KernelBytes(tokens), up_.KernelBytes(tokens))
             : 0;
}

ExpertLatents::Scratch ExpertLatents::Place(Arena& arena,
                                            int64_t tokens) const {
  if (!present()) return {};
  return {arena.TakeMatrix(tokens, width_, activation_),
          arena.TakeMatrix(tokens, width_, DType::kF32)};
}

absl::Status ExpertLatents::Down(const Step& step, const TensorView& x,
                                 const Scratch& scratch) const {
  return down_.Forward(x, {}, scratch.narrow, step.kernel_workspace,
                       step.stream);
}

absl::Status ExpertLatents::Up(const Step& step, const Scratch& scratch,
                               const TensorView& residual,
                               const TensorView& y) const {
  TensorView x = scratch.sum;
  if (narrow_.present()) {
    x = scratch.narrow;
    INLAY_RETURN_IF_ERROR(narrow_.Forward(scratch.sum, x, step.stream));
  }
  return up_.Forward(x, residual, y, step.kernel_workspace, step.stream);
}

}  // namespace inlay
