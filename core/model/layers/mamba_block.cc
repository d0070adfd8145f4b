#include "core/model/layers/mamba_block.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "memory/status.h"

namespace inlay {
namespace {

ShortConvDesc ConvOf(const MambaSpec& spec, DType activation) {
  ShortConvDesc desc;
  desc.channels = spec.conv_width();
  desc.num_taps = spec.num_taps;
  desc.silu = true;
  desc.activation = activation;
  return desc;
}

LinearAttentionDesc ScanOf(const MambaSpec& spec, DType activation) {
  LinearAttentionDesc desc;
  desc.num_heads = spec.num_heads;
  desc.num_key_heads = spec.num_groups;
  desc.key_dim = spec.state_size;
  desc.value_dim = spec.head_dim;
  desc.decay = StateDecay::kHead;
  desc.activation = activation;
  return desc;
}

// Factors of what is linear before the convolution; none where all are 1.
std::vector<float> ChannelScales(const MambaSpec& spec) {
  std::vector<float> scales;
  const auto inner = static_cast<size_t>(spec.inner());
  const auto bc = static_cast<size_t>(spec.bc_width());
  scales.insert(scales.end(), inner, spec.input_scales[1]);
  scales.insert(scales.end(), bc, spec.input_scales[2]);
  scales.insert(scales.end(), bc, spec.input_scales[3]);
  return scales;
}

}  // namespace

int64_t MambaBlock::ConvFloats(const MambaSpec& spec) {
  return ShortConvStateFloats(ConvOf(spec, DType::kF32));
}

int64_t MambaBlock::MatrixFloats(const MambaSpec& spec) {
  return LinearAttentionStateFloats(ScanOf(spec, DType::kF32));
}

absl::Status MambaBlock::ChooseKernels(const MambaSpec& spec,
                                       ModelBuild& build) {
  LinearAttentionDesc desc = ScanOf(spec, build.activation);
  desc.batch_invariant = build.batch_invariant;
  INLAY_ASSIGN_OR_RETURN(
      scan_,
      build.kernels.Choose("linear_attention", LinearAttentionTable(), desc));
  INLAY_ASSIGN_OR_RETURN(conv_,
                         build.kernels.Choose("short_conv", ShortConvTable(),
                                              ConvOf(spec, build.activation)));
  StateGatesDesc gates;
  gates.num_heads = spec.num_heads;
  gates.x_scale = spec.input_scales[4];
  gates.least = spec.least_step;
  gates.most = spec.most_step;
  gates.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gates_, build.kernels.Choose("state_gates", StateGatesTable(), gates));
  GatedNormDesc gate;
  gate.groups = spec.norm_groups;
  gate.width = spec.inner() / spec.norm_groups;
  gate.normalise = spec.norm.kind != NormKind::kNone;
  gate.gate_first = spec.gate_first;
  gate.gate_scale = spec.input_scales[0];
  gate.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      gate_, build.kernels.Choose("gated_norm", GatedNormTable(), gate));
  if (spec.output_scale != 1.0f) {
    ElementwiseDesc scale;
    scale.function = Elementwise::kScale;
    scale.width = spec.inner();
    scale.activation = build.activation;
    INLAY_ASSIGN_OR_RETURN(
        scale_, build.kernels.Choose("elementwise", ElementwiseTable(), scale));
  }
  if (build.fused) ChooseDecode(build);
  return absl::OkStatus();
}

void MambaBlock::ChooseDecode(const ModelBuild& build) {
  // The norm, where a kernel has it.
  for (const bool finishes : {true, false}) {
    auto decode = build.kernels.Choose(
        "decode_mamba", DecodeMambaTable(),
        DecodeMambaDesc{conv_.desc, gates_.desc, scan_.desc, finishes,
                        gate_.desc, output_scale_});
    if (!decode.ok()) continue;
    decode_ = *std::move(decode);
    return;
  }
}

absl::Status MambaBlock::LoadVectors(const MambaSpec& spec, ModelBuild& build) {
  WeightLoader& weights = build.weights;
  const std::string& prefix = spec.prefix;
  INLAY_ASSIGN_OR_RETURN(
      taps_, weights.Taps({{prefix + ".conv1d.weight", spec.conv_width()}},
                          spec.num_taps, ChannelScales(spec)));
  if (spec.conv_bias) {
    INLAY_ASSIGN_OR_RETURN(
        conv_bias_, weights.Vector(prefix + ".conv1d.bias", spec.conv_width(),
                                   VectorKind::kBias));
  }
  INLAY_ASSIGN_OR_RETURN(
      a_log_,
      weights.Vector(prefix + ".A_log", spec.num_heads, VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      dt_bias_,
      weights.Vector(prefix + ".dt_bias", spec.num_heads, VectorKind::kBias));
  INLAY_ASSIGN_OR_RETURN(
      skip_, weights.Vector(prefix + ".D", spec.num_heads, VectorKind::kScale));
  if (spec.norm.kind == NormKind::kNone) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      norm_, weights.Vector(spec.norm.name + ".weight", spec.inner(),
                            VectorKind::kScale));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sublayer>> MambaBlock::Create(
    const MambaSpec& spec, const Norm& norm, const KvStateView& state,
    ModelBuild& build) {
  auto block = std::make_unique<MambaBlock>();
  block->inner_ = spec.inner();
  block->bc_width_ = spec.bc_width();
  block->activation_ = build.activation;
  block->output_scale_ = spec.output_scale;
  block->epsilon_ = spec.norm.epsilon;
  block->state_ = LayerState(state, ConvFloats(spec));
  INLAY_RETURN_IF_ERROR(block->ChooseKernels(spec, build));
  INLAY_ASSIGN_OR_RETURN(
      block->input_, InputLinear::Create({spec.input}, norm, nullptr, build));
  INLAY_RETURN_IF_ERROR(block->LoadVectors(spec, build));
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

MambaBlock::Scratch MambaBlock::Place(Arena& arena, int64_t tokens) const {
  // Rows begin where vectors can.
  constexpr int64_t kColumns = 64;
  const int64_t heads = scan_.desc.num_heads;
  const int64_t width = conv_.desc.channels;
  const int64_t all = inner_ + width + heads;
  Scratch scratch;
  scratch.projected = ColumnSlice(
      arena.TakeMatrix(tokens, (all + kColumns - 1) / kColumns * kColumns,
                       activation_),
      0, all);
  scratch.dt = ColumnSlice(scratch.projected, inner_ + width, heads);
  scratch.mixed = arena.TakeMatrix(tokens, width, activation_);
  scratch.decay = arena.TakeMatrix(tokens, heads, DType::kF32);
  scratch.step = arena.TakeMatrix(tokens, heads, DType::kF32);
  return scratch;
}

size_t MambaBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  Place(arena, tokens);
  return arena.used();
}

size_t MambaBlock::KernelBytes(int64_t tokens, int64_t) const {
  return std::max({input_.KernelBytes(tokens), output_.KernelBytes(tokens),
                   scan_.WorkspaceBytes(tokens)});
}

absl::Status MambaBlock::Mix(const Step& step, const Scratch& scratch) const {
  const int64_t width = conv_.desc.channels;
  ShortConvParams conv;
  conv.x = ColumnSlice(scratch.projected, inner_, width);
  conv.taps = taps_;
  conv.bias = conv_bias_;
  conv.state = state_.Conv(step);
  conv.y = scratch.mixed;
  INLAY_RETURN_IF_ERROR(conv_.Run(conv, step.stream));
  StateGatesParams gates;
  gates.x = scratch.dt;
  gates.bias = dt_bias_;
  gates.a_log = a_log_;
  gates.decay = scratch.decay;
  gates.beta = scratch.step;
  INLAY_RETURN_IF_ERROR(gates_.Run(gates, step.stream));
  LinearAttentionParams scan;
  scan.v = scan.y = Mixed(scratch);
  scan.k = ColumnSlice(scratch.mixed, inner_, bc_width_);
  scan.q = ColumnSlice(scratch.mixed, inner_ + bc_width_, bc_width_);
  scan.decay = scratch.decay;
  scan.beta = scratch.step;
  scan.skip = skip_;
  scan.state = state_.Matrices(step);
  scan.workspace = step.kernel_workspace;
  return scan_.Run(scan, step.stream);
}

absl::Status MambaBlock::MixAtOnce(const Step& step,
                                   const Scratch& scratch) const {
  DecodeMambaParams params;
  params.x = ColumnSlice(scratch.projected, inner_, conv_.desc.channels);
  params.taps = taps_;
  params.conv_bias = conv_bias_;
  params.conv_state = state_.Conv(step);
  params.dt = scratch.dt;
  params.dt_bias = dt_bias_;
  params.a_log = a_log_;
  params.skip = skip_;
  params.state = state_.Matrices(step);
  params.z = ColumnSlice(scratch.projected, 0, inner_);
  params.norm = norm_;
  params.epsilon = epsilon_;
  params.y = Mixed(scratch);
  return decode_.Run(params, step.stream);
}

absl::Status MambaBlock::Finish(const Step& step,
                                const Scratch& scratch) const {
  GatedNormParams gate;
  gate.x = gate.y = Mixed(scratch);
  gate.z = ColumnSlice(scratch.projected, 0, inner_);
  gate.weight = norm_;
  gate.epsilon = epsilon_;
  INLAY_RETURN_IF_ERROR(gate_.Run(gate, step.stream));
  if (output_scale_ == 1.0f) return absl::OkStatus();
  ElementwiseParams scale;
  scale.y = gate.y;
  scale.value = output_scale_;
  return scale_.Run(scale, step.stream);
}

absl::Status MambaBlock::Forward(const Step& step, const BlockInput& x,
                                 const TensorView& residual,
                                 const TensorView& y) const {
  Arena arena(step.scratch);
  const Scratch scratch = Place(arena, x.hidden.rows());
  INLAY_RETURN_IF_ERROR(input_.Forward(step, x, {scratch.projected}));
  const bool at_once =
      decode_.row != nullptr && step.device.states.longest <= 1;
  INLAY_RETURN_IF_ERROR(at_once ? MixAtOnce(step, scratch)
                                : Mix(step, scratch));
  if (!at_once || !decode_.desc.finishes) {
    INLAY_RETURN_IF_ERROR(Finish(step, scratch));
  }
  return output_.Forward(Mixed(scratch), residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
