// LightningBlock: lightning attention and plain linear attention: projections,
// a feature map, the recurrence; a norm and a gate, or none.
#ifndef INLAY_CORE_MODEL_LAYERS_LIGHTNING_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_LIGHTNING_BLOCK_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/columns/columns.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/linear_attention.h"

namespace inlay {

class LightningBlock : public Sublayer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const LightningSpec& spec, const KvStateView& state, ModelBuild& build);
  static int64_t MatrixFloats(const LightningSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView heads;  // head by head its q, k and v; with one layer of all
    TensorView qkv;    // side by side
    TensorView q;      // columns of that, as k and v; of all heads
    TensorView k;
    TensorView v;
    TensorView gate;  // with one
  };

  absl::Status ChooseKernels(const LightningSpec& spec, ModelBuild& build);
  absl::Status LoadWeights(const LightningSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Project(const Step& step, const BlockInput& x,
                       const Scratch& scratch) const;
  // What heads give, in the place of v.
  absl::Status Mix(const Step& step, const Scratch& scratch) const;

  int64_t width_ = 0;
  DType activation_ = DType::kF32;
  float epsilon_ = 0.0f;
  LayerState state_;
  InputLinear input_;  // q, k and v; the gate
  bool has_gate_ = false;
  std::vector<ColumnRun> order_;   // of one layer's outputs; empty: there are
                                   // three
  const float* decays_ = nullptr;  // null: none
  const float* norm_ = nullptr;    // null: 1
  Op<ActivationDesc, ActivationParams> map_;  // no row: none
  Op<ColumnsDesc, ColumnsParams> columns_;
  Op<LinearAttentionDesc, LinearAttentionParams> attention_;
  Op<GatedNormDesc, GatedNormParams> gate_;  // no row: neither norm nor gate
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LIGHTNING_BLOCK_H_
