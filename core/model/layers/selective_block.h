// SelectiveBlock: a Mamba 1 mixer: projections, a short convolution, steps, B
// and C of what comes out of it, the selective scan with its gate.
#ifndef INLAY_CORE_MODEL_LAYERS_SELECTIVE_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_SELECTIVE_BLOCK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/selective_scan.h"
#include "kernels/linear_attention/short_conv.h"

namespace inlay {

class SelectiveBlock : public Sublayer {
 public:
  // `norm`: of the inputs to come.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const SelectiveSpec& spec, const Norm& norm, const KvStateView& state,
      ModelBuild& build);
  static int64_t ConvFloats(const SelectiveSpec& spec);
  static int64_t ScanFloats(const SelectiveSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView projected;  // x and z
    TensorView mixed;      // x after the convolution, then what the scan gives
    TensorView low;        // dt, B and C
    TensorView steps;
  };

  absl::Status ChooseKernels(const SelectiveSpec& spec, ModelBuild& build);
  absl::Status LoadLayers(const SelectiveSpec& spec, const Norm& norm,
                          ModelBuild& build);
  absl::Status LoadVectors(const SelectiveSpec& spec, ModelBuild& build);
  absl::Status LoadNorms(const SelectiveSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Convolve(const Step& step, const Scratch& scratch) const;
  // dt, B and C, and steps.
  absl::Status Select(const Step& step, const Scratch& scratch) const;
  absl::Status Scan(const Step& step, const Scratch& scratch) const;

  int64_t width_ = 0;
  int64_t rank_ = 0;
  DType activation_ = DType::kF32;
  LayerState state_;
  InputLinear input_;
  Linear low_;
  Linear steps_;
  Linear output_;
  const float* taps_ = nullptr;
  const float* conv_bias_ = nullptr;
  const float* rates_ = nullptr;
  const float* skip_ = nullptr;
  Norm dt_norm_;
  const float* bc_norm_ = nullptr;  // B's, then C's; null: 1
  float epsilon_ = 0.0f;
  Op<ShortConvDesc, ShortConvParams> conv_;
  Op<GatedNormDesc, GatedNormParams> bc_;  // no row: there are no norms
  Op<SelectiveScanDesc, SelectiveScanParams> scan_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_SELECTIVE_BLOCK_H_
