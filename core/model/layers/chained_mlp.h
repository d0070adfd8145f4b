// ChainedMlp: what a feed-forward part is to a LayerChain, which computes it
// otherwise: stages of linear_chain.
#ifndef INLAY_CORE_MODEL_LAYERS_CHAINED_MLP_H_
#define INLAY_CORE_MODEL_LAYERS_CHAINED_MLP_H_

#include <cstdint>

#include "core/model/layers/linear.h"
#include "core/model/layers/norm.h"
#include "core/model/layers/step.h"
#include "core/model/model_build.h"
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

// Whether kernels may be others than those of the ops that a chain stands for.
bool MayChain(const ModelBuild& build);

// A stage over `linear`'s weights.
LinearChainStage& AddStage(const Linear& linear, LinearChainDesc* desc);
LinearChainParams::Stage& AddStage(const Linear& linear, const TensorView& y,
                                   LinearChainParams* params);
void SetNorm(const Norm& norm, LinearChainParams::Stage* stage);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_CHAINED_MLP_H_
