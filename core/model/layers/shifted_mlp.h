// ShiftedMlp: an MLP that reads a token's row mixed with the one before it
// (RWKV's channel mix).
#ifndef INLAY_CORE_MODEL_LAYERS_SHIFTED_MLP_H_
#define INLAY_CORE_MODEL_LAYERS_SHIFTED_MLP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "core/model/layers/token_shift.h"

namespace inlay {

class ShiftedMlp : public Sublayer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const ShiftedMlpSpec& spec, const KvStateView& state, ModelBuild& build);
  static int64_t ShiftFloats(const ShiftedMlpSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  DType activation_ = DType::kF32;
  LayerState state_;
  TokenShift shift_;
  std::unique_ptr<Sublayer> mlp_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_SHIFTED_MLP_H_
