// ExpertLatents: experts over a narrower input (Nemotron 3 Super): a layer
// before them that makes it of what the router reads, and one behind their sum.
#ifndef INLAY_CORE_MODEL_LAYERS_EXPERT_LATENTS_H_
#define INLAY_CORE_MODEL_LAYERS_EXPERT_LATENTS_H_

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"

namespace inlay {

class ExpertLatents {
 public:
  ExpertLatents() = default;
  // Of a mixture that has them.
  static absl::StatusOr<ExpertLatents> Create(const MoeSpec& spec,
                                              ModelBuild& build);

  bool present() const { return width_ > 0; }
  int64_t width() const { return width_; }
  size_t KernelBytes(int64_t tokens) const;

  // Views into a mixture's scratch; empty where not present().
  struct Scratch {
    TensorView narrow;  // [tokens, width]: what experts read
    TensorView sum;     // [tokens, width] f32: what they give together
  };
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Down(const Step& step, const TensorView& x,
                    const Scratch& scratch) const;
  // y = up(sum) + residual, which may be empty or y itself.
  absl::Status Up(const Step& step, const Scratch& scratch,
                  const TensorView& residual, const TensorView& y) const;

 private:
  int64_t width_ = 0;
  DType activation_ = DType::kF32;
  Linear down_;
  Norm narrow_;  // converts the sum; not present where it need not be
  Linear up_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_EXPERT_LATENTS_H_
