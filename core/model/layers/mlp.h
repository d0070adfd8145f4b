// Mlp: down(f(in(x))), or down(f(gate(x)) * up(x)).
#ifndef INLAY_CORE_MODEL_LAYERS_MLP_H_
#define INLAY_CORE_MODEL_LAYERS_MLP_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/chained_mlp.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/activation/sparse_gate.h"
#include "kernels/activation/xielu.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/rounding/rounding.h"

namespace inlay {

class Mlp : public Sublayer, public ChainedMlp {
 public:
  // `norm`: of the inputs to come.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(const MlpSpec& spec,
                                                          const Norm& norm,
                                                          ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;
  bool by_rows() const override { return true; }

  bool Describe(LinearChainDesc* desc) const override;
  void Fill(const Step& step, int64_t tokens, const Norm& norm,
            LinearChainParams* params) const override;

 private:
  // Floats, for so many rows, of the scales.
  int64_t ScaleCount(int64_t rows) const;
  absl::Status ChooseXielu(const XieluSpec& spec, ModelBuild& build);
  absl::Status Activate(const ActivationParams& params, Stream& stream) const;
  absl::Status Scale(const TensorView& y, float factor, Stream& stream) const;
  absl::Status ScaleChannels(const TensorView& gate, const TensorView& up,
                             Stream& stream) const;
  absl::Status CutGate(const TensorView& gate, Stream& stream) const;

  int64_t inner_columns_ = 0;  // twice the width when gated
  InputLinear input_;
  Op<ActivationDesc, ActivationParams> activation_;
  Op<XieluDesc, XieluParams> xielu_;  // no row: activation_
  XieluNumbers numbers_;
  Op<SparseGateDesc, SparseGateParams> sparse_gate_;  // no row: none
  float gate_cut_ = 0.0f;
  Op<RoundingDesc, RoundingParams> rounded_;  // no row: activation_ first
  Op<ElementwiseDesc, ElementwiseParams> scale_;
  Norm gate_channels_;
  Norm up_channels_;
  float gate_scale_ = 1.0f;
  float inner_scale_ = 1.0f;
  Norm inner_norm_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_MLP_H_
