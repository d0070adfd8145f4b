// SharedTransformer: attention and an MLP one after the other, without sums,
// over the residual stream and the tokens' embeddings side by side; what layers
// of a model share but for a product of low rank beside the MLP's first matrix
// and a layer behind all.
#ifndef INLAY_CORE_MODEL_LAYERS_SHARED_TRANSFORMER_H_
#define INLAY_CORE_MODEL_LAYERS_SHARED_TRANSFORMER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/activation/activation.h"
#include "kernels/columns/columns.h"
#include "kernels/embedding/embedding.h"

namespace inlay {

class SharedTransformer : public Sublayer {
 public:
  // Of its attention: what AttentionBlock::Create wants.
  struct Place {
    KvLayerView kv;
    KvLayerView summaries;
    size_t kv_group = 0;
    int rotary_dim = 0;
  };
  static absl::StatusOr<std::unique_ptr<Sublayer>> Create(
      const SharedTransformerSpec& spec, const Place& place, ModelBuild& build);

  size_t ScratchBytes(int64_t tokens) const override;
  size_t KernelBytes(int64_t tokens, int64_t sequences) const override;
  size_t ExchangeBytes() const override { return attention_->ExchangeBytes(); }
  // There is no norm before it: x is the residual stream.
  absl::Status Forward(const Step& step, const BlockInput& x,
                       const TensorView& residual,
                       const TensorView& y) const override;

 private:
  struct Scratch {
    TensorView embedding;   // [tokens, hidden], float32; then what attention
                            // gives
    TensorView both;        // [tokens, 2 hidden], float32
    TensorView normalised;  // of that; then of what attention gave
    TensorView low;
    TensorView wide;   // gate and up, float32
    TensorView inner;  // the same as the activation reads it
    TensorView down;
    std::byte* attention = nullptr;
  };
  Scratch Lay(Arena& arena, int64_t tokens) const;
  absl::Status SetSideBySide(const Step& step, const BlockInput& x,
                             const Scratch& scratch) const;
  absl::Status ForwardMlp(const Step& step, const TensorView& x,
                          const Scratch& scratch) const;

  int64_t hidden_ = 0;
  DType activation_type_ = DType::kF32;
  Norm none_;  // absent, as what attention reads is normalised
  TensorView table_;
  Op<EmbeddingDesc, EmbeddingParams> embed_;
  Op<ColumnsDesc, ColumnsParams> columns_;
  Norm norm_;
  std::unique_ptr<Sublayer> attention_;
  Norm mlp_norm_;
  Linear gate_up_;
  Linear low_;
  Linear high_;
  Norm narrow_;  // to what the activation reads; absent where that is float32
  Op<ActivationDesc, ActivationParams> activation_;
  Linear down_;
  Linear output_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_SHARED_TRANSFORMER_H_
