#include "core/model/layers/laurel.h"

#include <algorithm>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<Laurel> Laurel::Create(const LaurelSpec& spec,
                                      ModelBuild& build) {
  Laurel laurel;
  laurel.factor_ = spec.factor;
  laurel.activation_ = build.activation;
  const int64_t width = spec.left.k;
  INLAY_ASSIGN_OR_RETURN(
      laurel.left_,
      Linear::Create(spec.left, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      laurel.right_, Linear::Create(spec.right, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      laurel.norm_,
      Norm::Create(spec.norm, width, DType::kF32, DType::kF32, build));
  INLAY_ASSIGN_OR_RETURN(laurel.narrow_, Norm::Create({}, width, DType::kF32,
                                                      build.activation, build));
  ElementwiseDesc add;
  add.width = width;
  INLAY_ASSIGN_OR_RETURN(
      laurel.add_,
      build.kernels.Choose("elementwise", ElementwiseTable(), add));
  ElementwiseDesc scale = add;
  scale.function = Elementwise::kScale;
  INLAY_ASSIGN_OR_RETURN(
      laurel.scale_,
      build.kernels.Choose("elementwise", ElementwiseTable(), scale));
  return laurel;
}

size_t Laurel::ScratchBytes(int64_t tokens) const {
  if (!present()) return 0;
  Arena arena(nullptr);
  arena.TakeMatrix(tokens, left_.outputs(), activation_);
  return arena.used();
}

size_t Laurel::KernelBytes(int64_t tokens) const {
  return present()
             ? std::max(left_.KernelBytes(tokens), right_.KernelBytes(tokens))
             : 0;
}

absl::Status Laurel::AddTo(const TensorView& hidden, const TensorView& n,
                           const TensorView& narrow, const TensorView& room,
                           const Step& step) const {
  Arena arena(step.scratch);
  const TensorView low =
      arena.TakeMatrix(n.rows(), left_.outputs(), activation_);
  if (narrows()) {
    INLAY_RETURN_IF_ERROR(narrow_.Forward(n, narrow, step.stream));
  }
  ElementwiseParams add;
  add.y = hidden;
  add.x = n;
  INLAY_RETURN_IF_ERROR(add_.Run(add, step.stream));
  INLAY_RETURN_IF_ERROR(
      left_.Forward(narrow, {}, low, step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(
      right_.Forward(low, {}, room, step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(norm_.Forward(room, room, step.stream));
  add.x = room;
  return add_.Run(add, step.stream);
}

absl::Status Laurel::Scale(const TensorView& hidden, Stream& stream) const {
  ElementwiseParams scale;
  scale.y = hidden;
  scale.value = factor_;
  return scale_.Run(scale, stream);
}

}  // namespace inlay
