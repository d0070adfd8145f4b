// Laurel: what a block adds beside its part of the same normalised input n: n +
// norm(right(left(n))), the sum of all times a factor; or nothing.
#ifndef INLAY_CORE_MODEL_LAYERS_LAUREL_H_
#define INLAY_CORE_MODEL_LAYERS_LAUREL_H_

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/elementwise/elementwise.h"

namespace inlay {

class Laurel {
 public:
  Laurel() = default;  // none
  static absl::StatusOr<Laurel> Create(const LaurelSpec& spec,
                                       ModelBuild& build);

  bool present() const { return norm_.present(); }
  size_t ScratchBytes(int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const;
  // hidden = factor * (hidden + n + norm(right(left(n)))). `n`: [tokens, width]
  // of ModelBuild::activation; `branch`: room for as much in float32.
  absl::Status AddTo(const TensorView& hidden, const TensorView& n,
                     const TensorView& branch, const Step& step) const;

 private:
  Linear left_;
  Linear right_;
  Norm norm_;
  Norm widen_;  // n to float32; not present where it is
  Op<ElementwiseDesc, ElementwiseParams> add_;
  Op<ElementwiseDesc, ElementwiseParams> scale_;
  float factor_ = 1.0f;
  DType activation_ = DType::kF32;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LAUREL_H_
