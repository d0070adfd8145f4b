#include "core/model/layers/input_linear.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<InputLinear> InputLinear::Create(
    absl::Span<const LinearSpec> specs, const Norm& norm,
    const ActivationDesc* activation, ModelBuild& build) {
  InputLinear input;
  INLAY_ASSIGN_OR_RETURN(input.layers_, Linear::CreateSideBySide(specs, build));
  if (input.is_one()) input.ChooseFused(norm, activation, build);
  input.ChooseRounded(norm, build);
  return input;
}

InputLinear InputLinear::Over(std::vector<Linear> layers) {
  InputLinear input;
  input.layers_ = std::move(layers);
  return input;
}

void InputLinear::ChooseFused(const Norm& norm,
                              const ActivationDesc* activation,
                              const ModelBuild& build) {
  // One kernel for all numbers of rows is cuBLAS's.
  if (!build.fused || build.batch_invariant || build.kernels.IsForced("gemm")) {
    return;
  }
  const auto choose = [&](const FusedLinearDesc& desc) {
    auto op = build.kernels.Choose("fused_linear", FusedLinearTable(), desc);
    return op.ok() ? *op : Fused();
  };
  FusedLinearDesc desc;
  desc.gemm = layers_.front().desc();
  if (IsBlockFormat(desc.gemm.weight) && !layers_.front().may_fuse()) return;
  if (activation != nullptr && activation->gated &&
      !build.kernels.IsForced("activation")) {
    desc.gated = true;
    desc.function = activation->function;
    gated_ = choose(desc);
    desc.gated = gated_.row != nullptr;
  }
  if (norm.is_rms() && !build.kernels.IsForced("rms_norm")) {
    desc.normalised = true;
    normalised_ = choose(desc);
  }
}

void InputLinear::ChooseRounded(const Norm& norm, const ModelBuild& build) {
  if (!build.fused || !norm.is_rms() || build.kernels.IsForced("rms_norm") ||
      build.on_cpu()) {
    return;
  }
  RoundingDesc desc;
  desc.source = RoundingSource::kRmsNorm;
  desc.width = layers_.front().desc().k;
  desc.input = DType::kF32;
  desc.activation = build.activation;
  const auto op = build.kernels.Choose("rounding", RoundingTable(), desc);
  if (op.ok()) rounded_ = *op;
}

RowRounding InputLinear::RoundingOf(int64_t rows) const {
  if (rounded_.row == nullptr) return RowRounding::kNone;
  const RowRounding rounding = layers_.front().RoundingOf(rows);
  for (const Linear& layer : layers_) {
    if (layer.RoundingOf(rows) != rounding) return RowRounding::kNone;
  }
  return rounding;
}

absl::Status InputLinear::ForwardRounded(
    const Step& step, const BlockInput& x, RowRounding rounding,
    absl::Span<const TensorView> outputs) const {
  // Codes and scales take less than the norm in 16 bits.
  const int64_t rows = x.hidden.rows();
  const int64_t width = rounded_.desc.width;
  RoundingParams params;
  params.rounding = rounding;
  params.x = x.hidden;
  params.weight = x.norm.weight();
  params.epsilon = x.norm.epsilon();
  params.codes =
      MatrixView(x.normalised.data, RoundingDType(rounding), rows, width);
  params.scales = reinterpret_cast<float*>(x.normalised.data + rows * width);
  INLAY_RETURN_IF_ERROR(rounded_.Run(params, step.stream));
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (outputs[i].empty()) continue;
    INLAY_RETURN_IF_ERROR(
        layers_[i].ForwardRounded({params.codes, params.scales}, {}, outputs[i],
                                  step.kernel_workspace, step.stream));
  }
  return absl::OkStatus();
}

size_t InputLinear::KernelBytes(int64_t tokens) const {
  size_t bytes = 0;
  for (const Linear& linear : layers_) {
    bytes = std::max(bytes, linear.KernelBytes(tokens));
  }
  return bytes;
}

absl::Status InputLinear::Forward(const Step& step, const BlockInput& x,
                                  absl::Span<const TensorView> outputs) const {
  const int64_t rows = x.hidden.rows();
  FusedLinearParams params;
  if (Serves(normalised_, rows)) {
    params.gemm = layers_.front().Params(x.hidden, {}, outputs[0]);
    params.norm_weight = x.norm.weight();
    params.epsilon = x.norm.epsilon();
    return normalised_.Run(params, step.stream);
  }
  const RowRounding rounding = RoundingOf(rows);
  if (rounding != RowRounding::kNone) {
    return ForwardRounded(step, x, rounding, outputs);
  }
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  if (Serves(gated_, rows)) {
    params.gemm = layers_.front().Params(x.normalised, {}, outputs[0]);
    return gated_.Run(params, step.stream);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (outputs[i].empty()) continue;
    INLAY_RETURN_IF_ERROR(layers_[i].Forward(
        x.normalised, {}, outputs[i], step.kernel_workspace, step.stream));
  }
  return absl::OkStatus();
}

absl::Status InputLinear::ForwardSideBySide(const Step& step,
                                            const BlockInput& x,
                                            const TensorView& whole) const {
  absl::InlinedVector<TensorView, 6> columns;
  int64_t first = 0;
  for (const Linear& layer : layers_) {
    columns.push_back(ColumnSlice(whole, first, layer.outputs()));
    first += layer.outputs();
  }
  return Forward(step, x, columns);
}

}  // namespace inlay
