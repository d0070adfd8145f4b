// Inputs of layers besides the residual stream: PerLayerInputs makes a step's,
// for all layers at once; PerLayerBlock adds what a layer makes of its slice.
#ifndef INLAY_CORE_MODEL_LAYERS_PER_LAYER_H_
#define INLAY_CORE_MODEL_LAYERS_PER_LAYER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"

namespace inlay {

class PerLayerInputs {
 public:
  PerLayerInputs() = default;  // none
  static absl::StatusOr<PerLayerInputs> Create(const PerLayerInputsSpec& spec,
                                               ModelBuild& build);

  bool present() const { return width_ > 0; }
  // Of the table, of which a token reads a row.
  size_t table_bytes() const { return table_.bytes(); }
  // What Forward fills, [tokens, all slices] f32.
  TensorView Place(Arena& arena, int64_t tokens) const;
  size_t KernelBytes(int64_t tokens) const {
    return projection_.KernelBytes(tokens);
  }
  // `embeddings`: [tokens, hidden_size] f32. `converted`: room for them in
  // ModelBuild::activation.
  absl::Status Forward(const int32_t* ids, const TensorView& embeddings,
                       const TensorView& converted, const TensorView& y,
                       void* kernel_workspace, Stream& stream) const;

 private:
  int64_t width_ = 0;
  float table_scale_ = 1.0f;
  float scale_ = 1.0f;
  TensorView table_;
  Norm convert_;  // not present where activations are f32
  Linear projection_;
  Norm norm_;
  Op<EmbeddingDesc, EmbeddingParams> look_up_;
  Op<ElementwiseDesc, ElementwiseParams> multiply_;
};

class PerLayerBlock : public Sublayer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const PerLayerSpec& spec, ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  int64_t first_ = 0;  // column of Step::per_layer_inputs
  Linear gate_;
  Norm copy_;
  Op<ActivationDesc, ActivationParams> activation_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_PER_LAYER_H_
