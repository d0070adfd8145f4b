#include "core/model/layers/layer_chain.h"

#include <initializer_list>
#include <utility>

namespace inlay {
namespace {

bool MayChain(const ModelBuild& build) {
  for (const char* op : {"gemm", "rms_norm", "activation", "fused_linear"}) {
    if (build.kernels.IsForced(op)) return false;
  }
  return build.fused && !build.on_cpu() && build.input_observer == nullptr;
}

}  // namespace

LayerChain::LayerChain(const AttentionBlock& attention,
                       const Normalised<Mlp>& mlp,
                       const Normalised<AttentionBlock>& next,
                       const ModelBuild& build)
    : attention_(&attention), mlp_(mlp), next_(next) {
  const Linear* const input = mlp.part->input();
  if (!MayChain(build) || input == nullptr || !mlp.norm->is_rms()) return;
  if (next.part != nullptr &&
      (next.part->qkv().empty() || !next.norm->is_rms())) {
    next_.part = nullptr;
  }
  LinearChainDesc desc;
  bool same_row = true;
  const auto add = [&](const Linear& linear) -> LinearChainStage& {
    same_row = same_row && linear.may_fuse();
    LinearChainStage& stage = desc.stages.emplace_back();
    stage.gemm = linear.desc();
    return stage;
  };
  add(attention.output()).adds = true;
  LinearChainStage& gate_up = add(*input);
  gate_up.normalised = true;
  gate_up.gated = true;
  gate_up.function = mlp.part->activation().function;
  add(mlp.part->output()).adds = true;
  const auto choose = [&] {
    auto op = build.kernels.Choose("linear_chain", LinearChainTable(), desc);
    if (same_row && op.ok()) op_ = *std::move(op);
    return op_.row != nullptr;
  };
  if (next_.part != nullptr) {
    const bool before = same_row;
    const size_t stages = desc.stages.size();
    for (const Linear& layer : next_.part->qkv()) {
      LinearChainStage& stage = add(layer);
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

void LayerChain::SetNorm(const Norm& norm, LinearChainParams::Stage* stage) {
  stage->norm_weight = norm.weight();
  stage->epsilon = norm.epsilon();
}

absl::Status LayerChain::Forward(const Step& step,
                                 const TensorView& hidden) const {
  const int64_t tokens = hidden.rows();
  LinearChainParams params;
  params.hidden = hidden;
  params.exchange = step.device.exchange;
  params.x = attention_->ContextOf(step, tokens);
  const auto add = [&](const Linear& linear,
                       const TensorView& y) -> LinearChainParams::Stage& {
    const GemmParams gemm = linear.Params({}, {}, {});
    LinearChainParams::Stage& stage = params.stages.emplace_back();
    stage.w = gemm.w;
    stage.bias = gemm.bias;
    stage.y = y;
    return stage;
  };
  add(attention_->output(), {});
  SetNorm(*mlp_.norm,
          &add(*mlp_.part->input(), mlp_.part->InnerOf(step, tokens)));
  add(mlp_.part->output(), {});
  if (next_.part != nullptr) {
    const TensorView qkv = next_.part->QkvOf(step, tokens);
    int64_t first = 0;
    for (const Linear& layer : next_.part->qkv()) {
      SetNorm(*next_.norm,
              &add(layer, ColumnSlice(qkv, first, layer.outputs())));
      first += layer.outputs();
    }
  }
  return op_.Run(params, step.stream);
}

}  // namespace inlay
