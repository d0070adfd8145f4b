#include "core/model/layers/short_conv_block.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {
namespace {

ShortConvDesc ConvOf(const ShortConvSpec& spec, DType activation) {
  ShortConvDesc desc;
  desc.channels = spec.width;
  desc.num_taps = spec.num_taps;
  desc.activation = activation;
  return desc;
}

}  // namespace

int64_t ShortConvBlock::ConvFloats(const ShortConvSpec& spec) {
  return ShortConvStateFloats(ConvOf(spec, DType::kF32));
}

absl::StatusOr<std::unique_ptr<Sublayer>> ShortConvBlock::Create(
    const ShortConvSpec& spec, const Norm& norm, const KvStateView& state,
    ModelBuild& build) {
  auto block = std::make_unique<ShortConvBlock>();
  block->state_ = LayerState(state, ConvFloats(spec));
  INLAY_ASSIGN_OR_RETURN(block->conv_,
                         build.kernels.Choose("short_conv", ShortConvTable(),
                                              ConvOf(spec, build.activation)));
  INLAY_ASSIGN_OR_RETURN(
      block->input_, InputLinear::Create({spec.input}, norm, nullptr, build));
  INLAY_ASSIGN_OR_RETURN(
      block->taps_,
      build.weights.Taps({{spec.conv + ".weight", spec.width}}, spec.num_taps));
  if (spec.conv_bias) {
    INLAY_ASSIGN_OR_RETURN(block->bias_,
                           build.weights.Vector(spec.conv + ".bias", spec.width,
                                                VectorKind::kBias));
  }
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

size_t ShortConvBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  arena.TakeMatrix(tokens, 3 * conv_.desc.channels, conv_.desc.activation);
  return arena.used();
}

size_t ShortConvBlock::KernelBytes(int64_t tokens, int64_t) const {
  return std::max(input_.KernelBytes(tokens), output_.KernelBytes(tokens));
}

absl::Status ShortConvBlock::Forward(const Step& step, const BlockInput& x,
                                     const TensorView& residual,
                                     const TensorView& y) const {
  Arena arena(step.scratch);
  const int64_t width = conv_.desc.channels;
  const TensorView inner =
      arena.TakeMatrix(x.hidden.rows(), 3 * width, conv_.desc.activation);
  INLAY_RETURN_IF_ERROR(input_.Forward(step, x, {inner}));
  ShortConvParams params;
  params.input_gate = ColumnSlice(inner, 0, width);
  params.output_gate = params.y = ColumnSlice(inner, width, width);
  params.x = ColumnSlice(inner, 2 * width, width);
  params.taps = taps_;
  params.bias = bias_;
  params.state = state_.Conv(step);
  INLAY_RETURN_IF_ERROR(conv_.Run(params, step.stream));
  return output_.Forward(params.y, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
