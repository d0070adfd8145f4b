// DeltaBlock: gated DeltaNet or Kimi delta attention: projections, short
// convolutions of q, k and v, the gated delta rule, a gated norm of each head.
#ifndef INLAY_CORE_MODEL_LAYERS_DELTA_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_DELTA_BLOCK_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"

namespace inlay {

class DeltaBlock : public Sublayer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const DeltaSpec& spec, const KvStateView& state, ModelBuild& build);
  static int64_t ConvFloats(const DeltaSpec& spec);
  static int64_t MatrixFloats(const DeltaSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  // Layers over one input, and the order that their columns are wanted in.
  struct Projection {
    std::vector<Linear> layers;
    std::vector<ColumnRun> order;  // empty: as they are
    int64_t width() const;
    size_t KernelBytes(int64_t tokens) const;
  };

  // Views into the scratch.
  struct Scratch {
    TensorView raw;        // what a projection gives before it is put in order
    TensorView low;        // of low rank
    TensorView projected;  // q, k, v, z
    TensorView mixed;      // q, k, v after the convolution; in raw's place
    TensorView z;
    TensorView b;
    TensorView a;
    TensorView decay;  // float32, as beta: of a and of b
    TensorView beta;
  };

  static absl::StatusOr<Projection> Load(const std::vector<LinearSpec>& specs,
                                         const std::vector<ColumnRun>& order,
                                         ModelBuild& build);
  absl::Status ChooseKernels(const DeltaSpec& spec, ModelBuild& build);
  absl::Status LoadVectors(const DeltaSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  absl::Status Project(const Step& step, const TensorView& x,
                       const Projection& projection, const TensorView& raw,
                       const TensorView& y) const;
  absl::Status ProjectLow(const Step& step, const TensorView& x,
                          const Projection& pair, const TensorView& low,
                          const TensorView& y) const;
  absl::Status ProjectAll(const Step& step, const TensorView& x,
                          const Scratch& scratch) const;
  absl::Status Convolve(const Step& step, const Scratch& scratch) const;
  // What comes out, [tokens, value_width_].
  absl::StatusOr<TensorView> Mix(const Step& step,
                                 const Scratch& scratch) const;

  int64_t key_width_ = 0;
  int64_t value_width_ = 0;
  int64_t decay_width_ = 0;
  DType activation_ = DType::kF32;
  float epsilon_ = 0.0f;
  LayerState state_;
  Projection qkvz_;
  Projection ba_;
  Projection low_rank_z_;  // no layers: z is of qkvz_
  Projection low_rank_a_;
  const float* taps_ = nullptr;
  const float* a_log_ = nullptr;
  const float* dt_bias_ = nullptr;
  const float* lengths_ = nullptr;  // of q and k, channel by channel
  const float* norm_ = nullptr;
  Op<ColumnsDesc, ColumnsParams> columns_;
  Op<ShortConvDesc, ShortConvParams> conv_;
  Op<GatedNormDesc, GatedNormParams> unit_;
  Op<StateGatesDesc, StateGatesParams> gates_;
  Op<LinearAttentionDesc, LinearAttentionParams> rule_;
  Op<GatedNormDesc, GatedNormParams> gated_norm_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_DELTA_BLOCK_H_
