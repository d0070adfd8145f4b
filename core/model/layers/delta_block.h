// DeltaBlock: gated DeltaNet or Kimi delta attention: projections, short
// convolutions of q, k and v, the gated delta rule, a gated norm of each head.
#ifndef INLAY_CORE_MODEL_LAYERS_DELTA_BLOCK_H_
#define INLAY_CORE_MODEL_LAYERS_DELTA_BLOCK_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layers/input_linear.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/recurrent.h"
#include "core/model/layers/step.h"
#include "core/model/layers/token_mixer.h"
#include "kernels/linear_attention/decode_delta.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"

namespace inlay {

class DeltaBlock : public Sublayer, public TokenMixer {
 public:
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const DeltaSpec& spec, const Norm& norm, const KvStateView& state,
      ModelBuild& build);
  static int64_t ConvFloats(const DeltaSpec& spec);
  static int64_t MatrixFloats(const DeltaSpec& spec);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

  const TokenMixer* mixer() const override { return this; }
  absl::Span<const Linear> inputs() const override { return input_.layers(); }
  const Linear& output() const override { return output_; }
  TensorView InputsOf(const Step& step, int64_t tokens) const override;
  TensorView MixedOf(const Step& step, int64_t tokens) const override;
  absl::Status Begin(const Step& step, const BlockInput& x) const override;
  absl::Status Mix(const Step& step, int64_t tokens) const override;

 private:
  // Views into the scratch.
  struct Scratch {
    TensorView raw;        // what reads x gives before it is put in order
    TensorView projected;  // q, k, v, z, what is of low rank, b, a
    TensorView mixed;      // q, k, v after the convolution; in raw's place
    TensorView z;
    TensorView b;
    TensorView a;
    TensorView decay;  // float32, as beta: of a and of b
    TensorView beta;
  };
  // What of low rank is widened to: columns of `projected` by a layer.
  struct Widened {
    int64_t first;
    Linear layer;
  };

  absl::Status ChooseKernels(const DeltaSpec& spec, ModelBuild& build);
  absl::Status LoadInput(const DeltaSpec& spec, const Norm& norm,
                         ModelBuild& build);
  absl::Status LoadVectors(const DeltaSpec& spec, ModelBuild& build);
  Scratch Place(Arena& arena, int64_t tokens) const;
  const TensorView& Projected(const Scratch& scratch) const {
    return order_.empty() ? scratch.projected : scratch.raw;
  }
  TensorView Mixed(const Scratch& scratch) const {
    return ColumnSlice(scratch.mixed, 2 * key_width_, value_width_);
  }
  absl::Status Widen(const Step& step, const std::optional<Widened>& widened,
                     const Scratch& scratch, const TensorView& y) const;
  absl::Status Convolve(const Step& step, const Scratch& scratch) const;
  absl::Status Recur(const Step& step, const Scratch& scratch) const;
  absl::Status MixAtOnce(const Step& step, const Scratch& scratch) const;

  int64_t key_width_ = 0;
  int64_t value_width_ = 0;
  int64_t decay_width_ = 0;
  DType activation_ = DType::kF32;
  float epsilon_ = 0.0f;
  float length_epsilon_ = 0.0f;
  LayerState state_;
  InputLinear input_;              // all that reads x, side by side
  std::vector<ColumnRun> order_;   // of its columns; empty: as they are
  int64_t raw_width_ = 0;          // of all of them
  int64_t first_b_ = 0;            // in order
  int64_t width_ = 0;              // of all, in order
  std::optional<Widened> wide_z_;  // none: z is behind v
  std::optional<Widened> wide_a_;  // none: a is behind b
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
  // Steps of few tokens a sequence, in the place of the ops from conv_ on;
  // without a row: none.
  Op<DecodeDeltaDesc, DecodeDeltaParams> decode_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_DELTA_BLOCK_H_
