// GatedInput: a part that reads its norm's output through a gate of low rank
// made of the same (A.X-K2).
#ifndef INLAY_CORE_MODEL_LAYERS_GATED_INPUT_H_
#define INLAY_CORE_MODEL_LAYERS_GATED_INPUT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/gated_norm/gated_norm.h"

namespace inlay {

class GatedInput : public Sublayer {
 public:
  // `part` is built for inputs that are normalised already.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const InputGateSpec& spec, std::unique_ptr<Sublayer> part,
      ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  size_t ExchangeBytes() const override { return part_->ExchangeBytes(); }
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;
  bool by_rows() const override { return part_->by_rows(); }

 private:
  // Views into the scratch, which the part has afterwards.
  struct Scratch {
    TensorView low;
    TensorView gate;
  };
  Scratch Place(Arena& arena, int64_t tokens) const;

  Linear low_;
  Linear high_;
  Op<ActivationDesc, ActivationParams> silu_;
  Op<GatedNormDesc, GatedNormParams> multiply_;
  std::unique_ptr<Sublayer> part_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_GATED_INPUT_H_
