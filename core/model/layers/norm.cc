#include "core/model/layers/norm.h"

#include "memory/status.h"

namespace inlay {

absl::StatusOr<Norm> Norm::Create(const NormSpec& spec, int64_t width,
                                  DType input, DType output,
                                  ModelBuild& build) {
  Norm norm;
  norm.kind_ = spec.kind;
  norm.epsilon_ = spec.epsilon;
  if (spec.kind == NormKind::kNone) return norm;
  INLAY_ASSIGN_OR_RETURN(
      norm.weight_, build.weights.Vector(spec.name + ".weight", width,
                                         spec.kind == NormKind::kRmsZeroCentred
                                             ? VectorKind::kZeroCentredScale
                                             : VectorKind::kScale));
  if (spec.kind == NormKind::kLayer) {
    INLAY_ASSIGN_OR_RETURN(
        norm.bias_,
        build.weights.Vector(spec.name + ".bias", width, VectorKind::kBias));
    LayerNormDesc desc;
    desc.width = width;
    desc.activation = input;
    desc.output = output;
    INLAY_ASSIGN_OR_RETURN(
        norm.layer_,
        build.kernels.Choose("layer_norm", LayerNormTable(), desc));
  } else {
    RmsNormDesc desc;
    desc.width = width;
    desc.activation = input;
    desc.output = output;
    INLAY_ASSIGN_OR_RETURN(
        norm.rms_, build.kernels.Choose("rms_norm", RmsNormTable(), desc));
  }
  return norm;
}

absl::Status Norm::Forward(const TensorView& x, const TensorView& y,
                           Stream& stream) const {
  if (kind_ == NormKind::kLayer) {
    LayerNormParams params;
    params.x = x;
    params.weight = weight_;
    params.bias = bias_;
    params.epsilon = epsilon_;
    params.y = y;
    return layer_.Run(params, stream);
  }
  RmsNormParams params;
  params.x = x;
  params.weight = weight_;
  params.epsilon = epsilon_;
  params.y = y;
  return rms_.Run(params, stream);
}

}  // namespace inlay
