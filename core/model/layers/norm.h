// Norm: RMSNorm or LayerNorm with its weights and kernel, or nothing.
#ifndef INLAY_CORE_MODEL_LAYERS_NORM_H_
#define INLAY_CORE_MODEL_LAYERS_NORM_H_

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model_build.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"

namespace inlay {

class Norm {
 public:
  Norm() = default;
  // `input`, `output`: dtypes of x and y.
  static absl::StatusOr<Norm> Create(const NormSpec& spec, int64_t width,
                                     DType input, DType output,
                                     ModelBuild& build);

  bool present() const { return kind_ != NormKind::kNone; }
  bool is_rms() const { return rms_.row != nullptr; }
  const float* weight() const { return weight_; }
  float epsilon() const { return epsilon_; }
  // x and y [rows, width]; y may be x where their dtypes agree. Must be
  // present.
  absl::Status Forward(const TensorView& x, const TensorView& y,
                       Stream& stream) const;

 private:
  NormKind kind_ = NormKind::kNone;
  float epsilon_ = 0.0f;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
  Op<RmsNormDesc, RmsNormParams> rms_;
  Op<LayerNormDesc, LayerNormParams> layer_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_NORM_H_
