// ChainedMlp: what a feed-forward part is to a LayerChain, which computes it
// otherwise: stages of linear_chain.
#ifndef INLAY_CORE_MODEL_LAYERS_CHAINED_MLP_H_
#define INLAY_CORE_MODEL_LAYERS_CHAINED_MLP_H_

#include <cstdint>

#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "kernels/linear_chain/linear_chain.h"

namespace inlay {

class ChainedMlp {
 public:
  virtual ~ChainedMlp() = default;
  // Appends the part's two stages, the first behind a norm. False: it is not
  // that, or its weights lie otherwise.
  virtual bool Describe(LinearChainDesc* desc) const = 0;
  // Their weights and places, in the order of Describe.
  virtual void Fill(const Step& step, int64_t tokens, const Norm& norm,
                    LinearChainParams* params) const = 0;
};

// A stage over `linear`'s weights.
inline LinearChainStage& AddStage(const Linear& linear, LinearChainDesc* desc) {
  LinearChainStage& stage = desc->stages.emplace_back();
  stage.gemm = linear.desc();
  return stage;
}
inline LinearChainParams::Stage& AddStage(const Linear& linear,
                                          const TensorView& y,
                                          LinearChainParams* params) {
  const GemmParams gemm = linear.Params({}, {}, {});
  LinearChainParams::Stage& stage = params->stages.emplace_back();
  stage.w = gemm.w;
  stage.bias = gemm.bias;
  stage.y = y;
  return stage;
}
inline void SetNorm(const Norm& norm, LinearChainParams::Stage* stage) {
  stage->norm_weight = norm.weight();
  stage->epsilon = norm.epsilon();
}

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_CHAINED_MLP_H_
