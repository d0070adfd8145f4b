#include "core/model/layers/mlp.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Sublayer>> Mlp::Create(const MlpSpec& spec,
                                                      ModelBuild& build) {
  auto mlp = std::make_unique<Mlp>();
  mlp->inner_columns_ = spec.gated ? 2 * spec.width : spec.width;
  INLAY_ASSIGN_OR_RETURN(mlp->input_,
                         Linear::CreateSideBySide(spec.input, build));
  INLAY_ASSIGN_OR_RETURN(
      mlp->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  ActivationDesc desc;
  desc.function = spec.activation;
  desc.gated = spec.gated;
  desc.width = spec.width;
  desc.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      mlp->activation_,
      build.kernels.Choose("activation", ActivationTable(), desc));
  return std::unique_ptr<Sublayer>(std::move(mlp));
}

size_t Mlp::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  arena.TakeMatrix(tokens, inner_columns_, activation_.desc.activation);
  return arena.used();
}

size_t Mlp::KernelBytes(int64_t tokens, int64_t) const {
  size_t bytes = output_.KernelBytes(tokens);
  for (const Linear& linear : input_) {
    bytes = std::max(bytes, linear.KernelBytes(tokens));
  }
  return bytes;
}

absl::Status Mlp::Forward(const Step& step, const TensorView& x,
                          const TensorView& residual,
                          const TensorView& y) const {
  Arena arena(step.scratch);
  const TensorView inner =
      arena.TakeMatrix(x.rows(), inner_columns_, activation_.desc.activation);
  INLAY_RETURN_IF_ERROR(
      ForwardSideBySide(input_, x, inner, step.kernel_workspace, step.stream));
  ActivationParams params;
  params.x = inner;
  params.y = ColumnSlice(inner, 0, activation_.desc.width);
  INLAY_RETURN_IF_ERROR(activation_.Run(params, step.stream));
  return output_.Forward(params.y, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
