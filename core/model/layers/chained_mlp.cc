#include "core/model/layers/chained_mlp.h"

#include <initializer_list>

namespace inlay {

bool MayChain(const ModelBuild& build) {
  for (const char* op : {"gemm", "rms_norm", "activation", "fused_linear",
                         "expert_linear", "moe_routing", "moe_combine"}) {
    if (build.kernels.IsForced(op)) return false;
  }
  return build.fused && !build.on_cpu() && build.input_observer == nullptr;
}

LinearChainStage& AddStage(const Linear& linear, LinearChainDesc* desc) {
  LinearChainStage& stage = desc->stages.emplace_back();
  stage.gemm = linear.desc();
  return stage;
}

LinearChainParams::Stage& AddStage(const Linear& linear, const TensorView& y,
                                   LinearChainParams* params) {
  const GemmParams gemm = linear.Params({}, {}, {});
  LinearChainParams::Stage& stage = params->stages.emplace_back();
  stage.w = gemm.w;
  stage.bias = gemm.bias;
  stage.y = y;
  return stage;
}

void SetNorm(const Norm& norm, LinearChainParams::Stage* stage) {
  stage->norm_weight = norm.weight();
  stage->epsilon = norm.epsilon();
}

}  // namespace inlay
