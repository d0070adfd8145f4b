// InputLinear: the matrices that a part of a layer reads its input with, and,
// where a kernel does these in one launch and rows are few, the norm before
// them and the activation after them. Where the matrices round many rows of
// their input to codes of 8 bits, the norm does it.
#ifndef INLAY_CORE_MODEL_LAYERS_INPUT_LINEAR_H_
#define INLAY_CORE_MODEL_LAYERS_INPUT_LINEAR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/fused_linear/fused_linear.h"
#include "kernels/rounding/rounding.h"

namespace inlay {

class InputLinear {
 public:
  InputLinear() = default;
  // `norm`: of the inputs to come. `activation`, or null: what is computed from
  // what Forward gives. Gate and up have equal rows and one bias or none.
  static absl::StatusOr<InputLinear> Create(absl::Span<const LinearSpec> specs,
                                            const Norm& norm,
                                            const ActivationDesc* activation,
                                            ModelBuild& build);
  // Over layers that are made already.
  static InputLinear Over(std::vector<Linear> layers);

  // Neighbours may be one matrix: of their outputs one after another.
  absl::Span<const Linear> layers() const { return layers_; }
  bool is_one() const { return layers_.size() == 1; }
  // Where is_one().
  const Linear& layer() const { return layers_.front(); }
  size_t KernelBytes(int64_t tokens) const;
  // Whether Forward of so many rows gives what the activation gives.
  bool Activates(int64_t rows) const { return Serves(gated_, rows); }
  // Into outputs, one a layer; nothing where nobody wants it and it is empty.
  // What x.normalised holds after is unspecified.
  absl::Status Forward(const Step& step, const BlockInput& x,
                       absl::Span<const TensorView> outputs) const;
  // The same into columns of one matrix, one layer's after another's.
  absl::Status ForwardSideBySide(const Step& step, const BlockInput& x,
                                 const TensorView& whole) const;

 private:
  using Fused = Op<FusedLinearDesc, FusedLinearParams>;
  // Rounded rows are another kernel's.
  bool Serves(const Fused& op, int64_t rows) const {
    return op.row != nullptr && FusedLinearServes(op.desc, rows) &&
           layers_.front().RoundingOf(rows) == RowRounding::kNone;
  }
  // Leaves out what no kernel serves.
  void ChooseFused(const Norm& norm, const ActivationDesc* activation,
                   const ModelBuild& build);
  void ChooseRounded(const Norm& norm, const ModelBuild& build);

  // What all layers round so many rows to, and the norm can.
  RowRounding RoundingOf(int64_t rows) const;
  absl::Status ForwardRounded(const Step& step, const BlockInput& x,
                              RowRounding rounding,
                              absl::Span<const TensorView> outputs) const;

  std::vector<Linear> layers_;
  // Of one layer: with the norm (and the activation), with the activation only.
  Fused normalised_;
  Fused gated_;
  // Norm and rounding; no row: apart.
  Op<RoundingDesc, RoundingParams> rounded_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_INPUT_LINEAR_H_
