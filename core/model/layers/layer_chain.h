// LayerChain: what lies between where a layer's tokens are mixed (attention, a
// recurrence) and where the next one's are (the output projection, the MLP, the
// next layer's projections) as one launch, for steps of few tokens on devices
// with a kernel for that. Kernels and weights are those of the parts it is made
// of.
#ifndef INLAY_CORE_MODEL_LAYERS_LAYER_CHAIN_H_
#define INLAY_CORE_MODEL_LAYERS_LAYER_CHAIN_H_

#include "absl/status/status.h"
#include "core/model/layers/chained_mlp.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "core/model/layers/token_mixer.h"
#include "kernels/linear_chain/linear_chain.h"

namespace inlay {

class LayerChain {
 public:
  // A part of a layer and the norm before it.
  template <typename Part>
  struct Normalised {
    const Norm* norm = nullptr;
    const Part* part = nullptr;
  };

  // None.
  LayerChain() = default;
  // All parts outlive it. `next.part` may be null. None where no kernel serves.
  LayerChain(const TokenMixer& mixer, const Normalised<ChainedMlp>& mlp,
             const Normalised<TokenMixer>& next, const ModelBuild& build);

  // Whether it serves a step of so many tokens.
  bool Serves(int64_t tokens) const { return tokens <= rows_; }
  // DeviceBatch::exchange has to have.
  size_t exchange_bytes() const {
    return op_.row == nullptr ? 0 : LinearChainExchangeBytes(op_.desc);
  }
  // Whether it runs the next layer's TokenMixer::Begin.
  bool begins_next() const { return next_.part != nullptr; }
  // After the mixer's Mix.
  absl::Status Forward(const Step& step, const TensorView& hidden) const;

 private:
  int64_t rows_ = 0;
  const TokenMixer* mixer_ = nullptr;
  Normalised<ChainedMlp> mlp_;
  Normalised<TokenMixer> next_;
  Op<LinearChainDesc, LinearChainParams> op_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_LAYER_CHAIN_H_
