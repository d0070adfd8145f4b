#include "core/model/layers/linear.h"

#include "core/model/layers/step.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<Linear> Linear::Over(const TensorView& weight,
                                    ModelBuild& build) {
  Linear linear;
  linear.weight_ = weight;
  GemmDesc desc;
  desc.n = weight.rows();
  desc.k = weight.cols();
  desc.weight = weight.dtype;
  INLAY_ASSIGN_OR_RETURN(linear.op_,
                         build.kernels.Choose("gemm", GemmTable(), desc));
  return linear;
}

absl::StatusOr<Linear> Linear::Create(const LinearSpec& spec,
                                      ModelBuild& build) {
  const std::string name = spec.name + ".weight";
  INLAY_ASSIGN_OR_RETURN(const TensorView weight,
                         spec.transposed
                             ? build.weights.Transposed(name, spec.n, spec.k)
                             : build.weights.Matrix(name, spec.n, spec.k));
  INLAY_ASSIGN_OR_RETURN(Linear linear, Over(weight, build));
  if (spec.bias) {
    INLAY_ASSIGN_OR_RETURN(
        linear.bias_,
        build.weights.Vector(spec.name + ".bias", spec.n, VectorKind::kBias));
  }
  return linear;
}

absl::Status Linear::Forward(const TensorView& x, const TensorView& residual,
                             const TensorView& y, void* workspace,
                             Stream& stream) const {
  GemmParams params;
  params.x = x;
  params.w = weight_;
  params.bias = bias_;
  params.residual = residual;
  params.y = y;
  params.workspace = workspace;
  return op_.Run(params, stream);
}

absl::Status ForwardSideBySide(absl::Span<const Linear> layers,
                               const TensorView& x, const TensorView& y,
                               void* workspace, Stream& stream) {
  int64_t column = 0;
  for (const Linear& layer : layers) {
    INLAY_RETURN_IF_ERROR(layer.Forward(
        x, {}, ColumnSlice(y, column, layer.outputs()), workspace, stream));
    column += layer.outputs();
  }
  return absl::OkStatus();
}

}  // namespace inlay
