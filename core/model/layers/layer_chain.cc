#include "core/model/layers/layer_chain.h"

#include <utility>

namespace inlay {
LayerChain::LayerChain(const TokenMixer& mixer,
                       const Normalised<ChainedMlp>& mlp,
                       const Normalised<TokenMixer>& next,
                       const ModelBuild& build)
    : mixer_(&mixer), mlp_(mlp), next_(next) {
  if (!MayChain(build) || !mlp.norm->is_rms()) return;
  if (next.part != nullptr &&
      (next.part->inputs().empty() || !next.norm->is_rms())) {
    next_.part = nullptr;
  }
  LinearChainDesc desc;
  bool same_row = mixer.output().may_chain();
  AddStage(mixer.output(), &desc).adds = true;
  if (!mlp.part->Describe(&desc)) return;
  const auto choose = [&] {
    auto op = build.kernels.Choose("linear_chain", LinearChainTable(), desc);
    if (same_row && op.ok()) op_ = *std::move(op);
    return op_.row != nullptr;
  };
  if (next_.part != nullptr) {
    const bool before = same_row;
    const size_t stages = desc.stages.size();
    for (const Linear& layer : next_.part->inputs()) {
      same_row = same_row && layer.may_chain();
      LinearChainStage& stage = AddStage(layer, &desc);
      stage.normalised = true;
      stage.same_x = desc.stages.size() > stages + 1;
    }
    if (!choose()) {
      next_.part = nullptr;
      desc.stages.resize(stages);
      same_row = before;
    }
  }
  if (op_.row != nullptr || choose()) {
    rows_ = LinearChainRows(op_.desc, build.kernels.device());
  }
}

absl::Status LayerChain::Forward(const Step& step,
                                 const TensorView& hidden) const {
  const int64_t tokens = hidden.rows();
  LinearChainParams params;
  params.hidden = hidden;
  params.exchange = step.device.exchange;
  params.x = mixer_->MixedOf(step, tokens);
  AddStage(mixer_->output(), {}, &params);
  mlp_.part->Fill(step, tokens, *mlp_.norm, &params);
  if (next_.part != nullptr) {
    const TensorView y = next_.part->InputsOf(step, tokens);
    int64_t first = 0;
    for (const Linear& layer : next_.part->inputs()) {
      SetNorm(
          *next_.norm,
          &AddStage(layer, ColumnSlice(y, first, layer.outputs()), &params));
      first += layer.outputs();
    }
  }
  return op_.Run(params, step.stream);
}

}  // namespace inlay
