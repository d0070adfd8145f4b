// HeadScale: multiplies heads' queries by what each has learned of their
// position (kernels/head_scale), with its weights and kernel; or nothing.
#ifndef INLAY_CORE_MODEL_LAYERS_HEAD_SCALE_H_
#define INLAY_CORE_MODEL_LAYERS_HEAD_SCALE_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
#include "kernels/head_scale/head_scale.h"

namespace inlay {

class HeadScale {
 public:
  HeadScale() = default;
  // Tensors NAME.s and NAME.b; of "" nothing.
  static absl::StatusOr<HeadScale> Create(const std::string& name,
                                          int num_heads, int head_dim,
                                          ModelBuild& build);

  // x: [tokens, num_heads * head_dim] of ModelBuild::activation.
  absl::Status Forward(const Step& step, const TensorView& x) const;

 private:
  Op<HeadScaleDesc, HeadScaleParams> op_;
  const float* scale_ = nullptr;
  const float* bias_ = nullptr;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_HEAD_SCALE_H_
