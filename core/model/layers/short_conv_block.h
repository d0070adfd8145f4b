// ShortConvBlock: a gated convolution over a token and the few before it, in
// the place of attention (LFM2).
#ifndef INLAY_CORE_MODEL_LAYERS_SHORT_CONV_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_SHORT_CONV_BLOCK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "kernels/linear_attention/short_conv.h"

namespace inlay {

class ShortConvBlock : public Sublayer {
 public:
  // `norm`: of the inputs to come.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const ShortConvSpec& spec, const Norm& norm, const KvStateView& state,
      ModelBuild& build);
  static int64_t ConvFloats(const ShortConvSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  LayerState state_;
  InputLinear input_;
  const float* taps_ = nullptr;
  const float* bias_ = nullptr;
  Op<ShortConvDesc, ShortConvParams> conv_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_SHORT_CONV_BLOCK_H_
