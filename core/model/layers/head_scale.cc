#include "core/model/layers/head_scale.h"

#include "memory/status.h"

namespace inlay {

absl::StatusOr<HeadScale> HeadScale::Create(const std::string& name,
                                            int num_heads, int head_dim,
                                            ModelBuild& build) {
  HeadScale scale;
  if (name.empty()) return scale;
  HeadScaleDesc desc;
  desc.num_heads = num_heads;
  desc.head_dim = head_dim;
  desc.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      scale.op_, build.kernels.Choose("head_scale", HeadScaleTable(), desc));
  INLAY_ASSIGN_OR_RETURN(
      scale.scale_,
      build.weights.Vector(name + ".s", num_heads, VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      scale.bias_,
      build.weights.Vector(name + ".b", num_heads, VectorKind::kScale));
  return scale;
}

absl::Status HeadScale::Forward(const Step& step, const TensorView& x) const {
  if (op_.row == nullptr) return absl::OkStatus();
  HeadScaleParams params;
  params.x = x;
  params.positions = step.device.positions;
  params.scale = scale_;
  params.bias = bias_;
  return op_.Run(params, step.stream);
}

}  // namespace inlay
