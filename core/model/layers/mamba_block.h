// MambaBlock: a Mamba 2 mixer: projections, a short convolution, the state
// space recurrence, a gated norm.
#ifndef INLAY_CORE_MODEL_LAYERS_MAMBA_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_MAMBA_BLOCK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear_attention/decode_mamba.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"

namespace inlay {

class MambaBlock : public Sublayer {
 public:
  // `norm`: of the inputs to come.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const MambaSpec& spec, const Norm& norm, const KvStateView& state,
      ModelBuild& build);
  static int64_t ConvFloats(const MambaSpec& spec);
  static int64_t MatrixFloats(const MambaSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView projected;  // z, x, B, C, dt
    TensorView dt;
    TensorView mixed;  // x, B, C after the convolution
    TensorView decay;
    TensorView step;
  };

  absl::Status ChooseKernels(const MambaSpec& spec, ModelBuild& build);
  void ChooseDecode(const ModelBuild& build);
  absl::Status LoadVectors(const MambaSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  TensorView Mixed(const Scratch& scratch) const {
    return ColumnSlice(scratch.mixed, 0, inner_);
  }
  // The convolution and the recurrence.
  absl::Status Mix(const Step& step, const Scratch& scratch) const;
  absl::Status MixAtOnce(const Step& step, const Scratch& scratch) const;
  // What follows these.
  absl::Status Finish(const Step& step, const Scratch& scratch) const;

  int64_t inner_ = 0;
  int64_t bc_width_ = 0;
  DType activation_ = DType::kF32;
  float output_scale_ = 1.0f;
  float epsilon_ = 0.0f;
  LayerState state_;
  InputLinear input_;
  const float* taps_ = nullptr;
  const float* conv_bias_ = nullptr;
  const float* a_log_ = nullptr;
  const float* dt_bias_ = nullptr;
  const float* skip_ = nullptr;
  const float* norm_ = nullptr;
  Op<ShortConvDesc, ShortConvParams> conv_;
  Op<StateGatesDesc, StateGatesParams> gates_;
  Op<LinearAttentionDesc, LinearAttentionParams> scan_;
  Op<GatedNormDesc, GatedNormParams> gate_;
  Op<ElementwiseDesc, ElementwiseParams> scale_;
  // Steps of one token a sequence, in the place of the ops from conv_ on, or up
  // to scan_ where it does not finish; without a row: none.
  Op<DecodeMambaDesc, DecodeMambaParams> decode_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_MAMBA_BLOCK_H_
