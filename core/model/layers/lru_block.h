// LruBlock: Griffin's recurrent block: projections, a short convolution, gates
// of what comes out of it, the real-gated linear recurrent unit.
#ifndef INLAY_CORE_MODEL_LAYERS_LRU_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_LRU_BLOCK_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/grouped_linear.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "kernels/linear_attention/rg_lru.h"
#include "kernels/linear_attention/short_conv.h"

namespace inlay {

class LruBlock : public Sublayer {
 public:
  // `norm`: of the inputs to come.
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const LruSpec& spec, const Norm& norm, const KvStateView& state,
      ModelBuild& build);
  static int64_t ConvFloats(const LruSpec& spec);
  static int64_t LruFloats(const LruSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView projected;  // x and z
    TensorView mixed;      // x after the convolution, then what comes out
    TensorView input;      // gates before their sigmoid
    TensorView recurrence;
    std::byte* groups = nullptr;  // GroupedLinear::ScratchBytes
  };

  absl::Status LoadLayers(const LruSpec& spec, const Norm& norm,
                          ModelBuild& build);
  absl::Status LoadVectors(const LruSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Convolve(const Step& step, const Scratch& scratch) const;
  absl::Status Recur(const Step& step, const Scratch& scratch) const;

  int64_t width_ = 0;
  DType activation_ = DType::kF32;
  LayerState state_;
  InputLinear input_;
  GroupedLinear input_gate_;
  GroupedLinear recurrence_gate_;
  Linear output_;
  const float* taps_ = nullptr;
  const float* conv_bias_ = nullptr;
  const float* rates_ = nullptr;
  Op<ShortConvDesc, ShortConvParams> conv_;
  Op<RgLruDesc, RgLruParams> lru_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LRU_BLOCK_H_
