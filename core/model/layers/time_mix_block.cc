#include "core/model/layers/time_mix_block.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "memory/status.h"

namespace inlay {
namespace {

// Ways that a row is mixed with the one before it, as files that have all in
// one tensor order them.
enum MixWay : int { kMixR, kMixDecay, kMixK, kMixV, kMixRate, kMixGate };
constexpr int kMixWays = 6;

Wkv7Desc WkvOf(const TimeMixSpec& spec, DType activation) {
  Wkv7Desc desc;
  desc.num_heads = spec.num_heads;
  desc.head_dim = spec.head_dim;
  desc.mixes = !spec.first;
  desc.activation = activation;
  return desc;
}

}  // namespace

int64_t TimeMixBlock::ShiftFloats(const TimeMixSpec& spec) {
  return TokenShift::StateFloats(spec.width());
}

int64_t TimeMixBlock::MatrixFloats(const TimeMixSpec& spec) {
  return Wkv7StateFloats(WkvOf(spec, DType::kF32));
}

absl::StatusOr<TimeMixBlock::LowRank> TimeMixBlock::LoadLowRank(
    const std::vector<LinearSpec>& specs, LinearOutput output,
    ModelBuild& build) {
  LowRank layers;
  INLAY_ASSIGN_OR_RETURN(
      layers.low,
      Linear::Create(specs.front(), LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(layers.high,
                         Linear::Create(specs.back(), output, build));
  return layers;
}

absl::Status TimeMixBlock::LoadLayers(const TimeMixSpec& spec,
                                      ModelBuild& build) {
  for (const auto& [from, to] :
       {std::pair{&spec.r, &r_}, {&spec.k, &k_}, {&spec.v, &v_}}) {
    INLAY_ASSIGN_OR_RETURN(
        *to, Linear::Create(*from, LinearOutput::kActivation, build));
  }
  // Exponents of decays and arguments of sigmoids: float32, whatever layers
  // hand on.
  INLAY_ASSIGN_OR_RETURN(decay_,
                         LoadLowRank(spec.decay, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(rate_,
                         LoadLowRank(spec.rate, LinearOutput::kFloat, build));
  if (!spec.first) {
    INLAY_ASSIGN_OR_RETURN(mix_,
                           LoadLowRank(spec.mix, LinearOutput::kFloat, build));
  }
  INLAY_ASSIGN_OR_RETURN(
      gate_, LoadLowRank(spec.gate, LinearOutput::kActivation, build));
  INLAY_ASSIGN_OR_RETURN(
      output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  for (const LowRank* layers : {&decay_, &rate_, &mix_, &gate_}) {
    if (layers == &mix_ && spec.first) continue;
    low_width_ = std::max(low_width_, layers->low.outputs());
  }
  // tanh is a softcap of 1.
  for (const auto& [layers, function] :
       {std::pair{&decay_, Elementwise::kSoftcap},
        std::pair{&gate_, Elementwise::kSigmoid}}) {
    const ElementwiseDesc desc = {function, layers->low.outputs(),
                                  build.activation};
    INLAY_ASSIGN_OR_RETURN(
        layers->function,
        build.kernels.Choose("elementwise", ElementwiseTable(), desc));
  }
  return absl::OkStatus();
}

absl::Status TimeMixBlock::LoadVectors(const TimeMixSpec& spec,
                                       ModelBuild& build) {
  WeightLoader& weights = build.weights;
  const std::string& prefix = spec.prefix;
  const int64_t width = spec.width();
  std::vector<std::string> names = {prefix + ".x_x"};
  if (!weights.Has(names.front())) {
    names.clear();
    for (const char* way : {"r", "w", "k", "v", "a", "g"}) {
      names.push_back(prefix + ".x_" + way);
    }
  }
  INLAY_ASSIGN_OR_RETURN(shift_,
                         TokenShift::Create(names, kMixWays, width, build));
  INLAY_ASSIGN_OR_RETURN(
      k_scale_, weights.Vector(prefix + ".k_k", width, VectorKind::kScale));
  INLAY_ASSIGN_OR_RETURN(
      k_rate_, weights.Vector(prefix + ".k_a", width, VectorKind::kScale));
  INLAY_ASSIGN_OR_RETURN(
      bonus_, weights.Floats(prefix + ".r_k", spec.num_heads, spec.head_dim,
                             VectorKind::kScale));
  INLAY_ASSIGN_OR_RETURN(
      norm_weight_,
      weights.Vector(prefix + ".g_norm.weight", width, VectorKind::kScale));
  INLAY_ASSIGN_OR_RETURN(norm_bias_, weights.Vector(prefix + ".g_norm.bias",
                                                    width, VectorKind::kBias));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> TimeMixBlock::Create(
    const TimeMixSpec& spec, const KvStateView& state, ModelBuild& build) {
  auto block = std::make_unique<TimeMixBlock>();
  block->state_ = LayerState(state, ShiftFloats(spec));
  block->epsilon_ = spec.epsilon;
  INLAY_ASSIGN_OR_RETURN(
      block->wkv_,
      build.kernels.Choose("wkv7", Wkv7Table(), WkvOf(spec, build.activation)));
  INLAY_RETURN_IF_ERROR(block->LoadVectors(spec, build));
  INLAY_RETURN_IF_ERROR(block->LoadLayers(spec, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

TimeMixBlock::Scratch TimeMixBlock::Place(Arena& arena, int64_t tokens) const {
  const int64_t width = shift_.width();
  const DType activation = wkv_.desc.activation;
  // Rows begin where vectors can.
  constexpr int64_t kColumns = 64;
  const int64_t low_room = (low_width_ + kColumns - 1) / kColumns * kColumns;
  Scratch scratch;
  scratch.mixed = arena.TakeMatrix(tokens, width, activation);
  scratch.low = arena.TakeMatrix(tokens, low_room, activation);
  for (TensorView* rows : {&scratch.r, &scratch.k, &scratch.v, &scratch.g}) {
    if (rows == &scratch.v && !wkv_.desc.mixes) continue;
    *rows = arena.TakeMatrix(tokens, width, activation);
  }
  for (TensorView* rows : {&scratch.decay, &scratch.rate, &scratch.mix}) {
    if (rows == &scratch.mix && !wkv_.desc.mixes) continue;
    *rows = arena.TakeMatrix(tokens, width, DType::kF32);
  }
  return scratch;
}

size_t TimeMixBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t TimeMixBlock::KernelBytes(int64_t tokens, int64_t) const {
  size_t bytes = 0;
  for (const Linear* layer : {&r_, &k_, &v_, &output_}) {
    bytes = std::max(bytes, layer->KernelBytes(tokens));
  }
  for (const LowRank* layers : {&decay_, &rate_, &mix_, &gate_}) {
    if (layers == &mix_ && !wkv_.desc.mixes) continue;
    bytes = std::max({bytes, layers->low.KernelBytes(tokens),
                      layers->high.KernelBytes(tokens)});
  }
  return bytes;
}

absl::Status TimeMixBlock::RunLowRank(const LowRank& layers, const Step& step,
                                      const Scratch& scratch,
                                      const TensorView& y) const {
  const TensorView low = ColumnSlice(scratch.low, 0, layers.low.outputs());
  INLAY_RETURN_IF_ERROR(layers.low.Forward(scratch.mixed, {}, low,
                                           step.kernel_workspace, step.stream));
  if (layers.function.row != nullptr) {
    ElementwiseParams params;
    params.y = low;
    params.value = 1.0f;
    INLAY_RETURN_IF_ERROR(layers.function.Run(params, step.stream));
  }
  return layers.high.Forward(low, {}, y, step.kernel_workspace, step.stream);
}

absl::Status TimeMixBlock::Forward(const Step& step, const BlockInput& x,
                                   const TensorView& residual,
                                   const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  // The first layer's values are others' to read.
  const TensorView& v = wkv_.desc.mixes ? scratch.v : step.first_values;
  const StateParams shift_state = state_.Conv(step);
  const auto mix = [&](MixWay way) {
    return shift_.Forward(way, shift_state, x.normalised, scratch.mixed,
                          step.stream);
  };
  const auto project = [&](const Linear& layer, const TensorView& to) {
    return layer.Forward(scratch.mixed, {}, to, step.kernel_workspace,
                         step.stream);
  };
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(mix(kMixR));
  INLAY_RETURN_IF_ERROR(project(r_, scratch.r));
  INLAY_RETURN_IF_ERROR(mix(kMixDecay));
  INLAY_RETURN_IF_ERROR(RunLowRank(decay_, step, scratch, scratch.decay));
  INLAY_RETURN_IF_ERROR(mix(kMixK));
  INLAY_RETURN_IF_ERROR(project(k_, scratch.k));
  INLAY_RETURN_IF_ERROR(mix(kMixV));
  INLAY_RETURN_IF_ERROR(project(v_, v));
  if (wkv_.desc.mixes) {
    INLAY_RETURN_IF_ERROR(RunLowRank(mix_, step, scratch, scratch.mix));
  }
  INLAY_RETURN_IF_ERROR(mix(kMixRate));
  INLAY_RETURN_IF_ERROR(RunLowRank(rate_, step, scratch, scratch.rate));
  INLAY_RETURN_IF_ERROR(mix(kMixGate));
  INLAY_RETURN_IF_ERROR(RunLowRank(gate_, step, scratch, scratch.g));
  Wkv7Params wkv;
  wkv.r = wkv.y = scratch.r;
  wkv.k = scratch.k;
  wkv.v = v;
  wkv.g = scratch.g;
  wkv.decay = scratch.decay;
  wkv.rate = scratch.rate;
  wkv.first_v = step.first_values;
  wkv.mix = scratch.mix;
  wkv.k_scale = k_scale_;
  wkv.k_rate = k_rate_;
  wkv.bonus = bonus_;
  wkv.norm_weight = norm_weight_;
  wkv.norm_bias = norm_bias_;
  wkv.epsilon = epsilon_;
  wkv.state = state_.Matrices(step);
  INLAY_RETURN_IF_ERROR(wkv_.Run(wkv, step.stream));
  return output_.Forward(scratch.r, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
