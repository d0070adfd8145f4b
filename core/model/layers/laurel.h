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
  // Whether matrices read n in another type than float32.
  bool narrows() const { return narrow_.present(); }
  // hidden += n + norm(right(left(n))). `n`: [tokens, width] in float32;
  // `narrow`: n in ModelBuild::activation, written if that is another type,
  // else n itself; `room`: float32, of n's shape, n itself if it narrows.
  absl::Status AddTo(const TensorView& hidden, const TensorView& n,
                     const TensorView& narrow, const TensorView& room,
                     const Step& step) const;
  // hidden *= factor, once the part's output was added too.
  absl::Status Scale(const TensorView& hidden, Stream& stream) const;

 private:
  Linear left_;
  Linear right_;
  Norm norm_;
  Norm narrow_;  // n to activation_; not present where that is float32
  Op<ElementwiseDesc, ElementwiseParams> add_;
  Op<ElementwiseDesc, ElementwiseParams> scale_;
  float factor_ = 1.0f;
  DType activation_ = DType::kF32;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LAUREL_H_
