// RowHead: layers that make a vector of one row, whatever its sequence: what
// stands before a classifier's last product, and sentence-transformers' Dense
// modules behind the pooling.
#ifndef INLAY_CORE_MODEL_LAYERS_ROW_HEAD_H_
#define INLAY_CORE_MODEL_LAYERS_ROW_HEAD_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"

namespace inlay {

class RowHead {
 public:
  RowHead() = default;  // none
  // `output`: of the last layer; the others give activations.
  static absl::StatusOr<RowHead> Create(absl::Span<const HeadLayerSpec> specs,
                                        LinearOutput output, ModelBuild& build);

  bool present() const { return !layers_.empty(); }
  int64_t outputs() const { return layers_.back().linear.outputs(); }
  size_t ScratchBytes(int64_t rows) const;
  size_t KernelBytes(int64_t rows) const;
  // x [rows, inputs] of ModelBuild::activation, y [rows, outputs()] as Create()
  // was told. Must be present.
  absl::Status Forward(const TensorView& x, const TensorView& y,
                       std::byte* scratch, void* kernel_workspace,
                       Stream& stream) const;

 private:
  // norm(f(x w^T + b)), each where there is one.
  struct Layer {
    Linear linear;
    DType dtype = DType::kF32;  // of what it gives
    Op<ElementwiseDesc, ElementwiseParams> tanh;
    Op<ActivationDesc, ActivationParams> activation;
    Norm norm;
  };

  static absl::StatusOr<Layer> CreateLayer(const HeadLayerSpec& spec,
                                           LinearOutput output,
                                           ModelBuild& build);
  // What each layer but the last gives.
  std::vector<TensorView> Place(Arena& arena, int64_t rows) const;

  std::vector<Layer> layers_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ROW_HEAD_H_
