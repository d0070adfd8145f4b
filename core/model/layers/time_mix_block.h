// TimeMixBlock: RWKV-7's time mix: a token's row mixed with the one before it
// in six ways, of which layers make what the recurrence (kernels/
// linear_attention/wkv7.h) reads; its output through one more.
#ifndef INLAY_CORE_MODEL_LAYERS_TIME_MIX_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_TIME_MIX_BLOCK_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "core/model/layers/token_shift.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear_attention/wkv7.h"

namespace inlay {

class TimeMixBlock : public Sublayer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const TimeMixSpec& spec, const KvStateView& state, ModelBuild& build);
  static int64_t ShiftFloats(const TimeMixSpec& spec);
  static int64_t MatrixFloats(const TimeMixSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // high(f(low(x))).
  struct LowRank {
    Linear low;
    Linear high;
    Op<ElementwiseDesc, ElementwiseParams> function;  // no row: none
  };
  // Views into the scratch.
  struct Scratch {
    TensorView mixed;  // a way's rows
    TensorView low;    // as wide as the widest
    TensorView r, k, v, g;
    TensorView decay, rate, mix;  // float32
  };

  static absl::StatusOr<LowRank> LoadLowRank(
      const std::vector<LinearSpec>& specs, LinearOutput output,
      ModelBuild& build);
  absl::Status LoadLayers(const TimeMixSpec& spec, ModelBuild& build);
  absl::Status LoadVectors(const TimeMixSpec& spec, ModelBuild& build);
  absl::Status RunLowRank(const LowRank& layers, const Step& step,
                          const Scratch& scratch, const TensorView& y) const;
  Scratch Place(Arena& arena, int64_t tokens) const;

  LayerState state_;
  TokenShift shift_;
  Linear r_;
  Linear k_;
  Linear v_;
  LowRank decay_;
  LowRank rate_;
  LowRank mix_;  // where wkv_.desc.mixes
  LowRank gate_;
  Linear output_;
  int64_t low_width_ = 0;
  float epsilon_ = 0.0f;
  const float* k_scale_ = nullptr;
  const float* k_rate_ = nullptr;
  const float* bonus_ = nullptr;
  const float* norm_weight_ = nullptr;
  const float* norm_bias_ = nullptr;
  Op<Wkv7Desc, Wkv7Params> wkv_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_TIME_MIX_BLOCK_H_
