// MlpMoe: an MLP and a mixture of experts over one input, each between norms of
// its own, added.
#ifndef INLAY_CORE_MODEL_LAYERS_MLP_MOE_H_
#define INLAY_CORE_MODEL_LAYERS_MLP_MOE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/elementwise/elementwise.h"

namespace inlay {

// Has a post_norm after it, so that Forward gets no residual and y is not x.
class MlpMoe : public Sublayer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const MlpMoeSpec& spec, int64_t hidden_size, ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;
  bool by_rows() const override {
    return mlp_.part->by_rows() && moe_.part->by_rows();
  }

 private:
  struct Half {
    Norm pre_norm;
    Norm post_norm;
    std::unique_ptr<Sublayer> part;
  };
  struct Scratch {
    TensorView input;   // [tokens, hidden]: what a half reads
    TensorView output;  // [tokens, hidden] f32: of the experts
    std::byte* rest = nullptr;
  };

  static absl::Status LoadNorms(const NormSpec& pre_norm,
                                const NormSpec& post_norm, int64_t hidden_size,
                                ModelBuild& build, Half* half);
  static absl::Status Run(const Half& half, const Step& step,
                          const TensorView& hidden, const Scratch& scratch,
                          const TensorView& y);
  Scratch Place(Arena& arena, int64_t tokens) const;

  DType activation_ = DType::kF32;
  Half mlp_;
  Half moe_;
  Op<ElementwiseDesc, ElementwiseParams> add_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_MLP_MOE_H_
