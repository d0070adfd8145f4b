#include "core/model/layers/per_layer.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<PerLayerInputs> PerLayerInputs::Create(
    const PerLayerInputsSpec& spec, ModelBuild& build) {
  PerLayerInputs inputs;
  inputs.width_ = spec.width;
  inputs.table_scale_ = spec.table_scale;
  inputs.scale_ = spec.scale;
  INLAY_ASSIGN_OR_RETURN(
      inputs.table_, build.weights.Matrix(spec.table, spec.rows, spec.all()));
  INLAY_ASSIGN_OR_RETURN(inputs.convert_,
                         Norm::Create({}, spec.projection.k, DType::kF32,
                                      build.activation, build));
  INLAY_ASSIGN_OR_RETURN(
      inputs.projection_,
      Linear::Create(spec.projection, LinearOutput::kFloat, build));
  INLAY_ASSIGN_OR_RETURN(
      inputs.norm_,
      Norm::Create(spec.norm, spec.width, DType::kF32, DType::kF32, build));
  EmbeddingDesc look_up;
  look_up.width = spec.all();
  look_up.table = inputs.table_.dtype;
  INLAY_ASSIGN_OR_RETURN(
      inputs.look_up_,
      build.kernels.Choose("embedding", EmbeddingTable(), look_up));
  ElementwiseDesc multiply;
  multiply.function = Elementwise::kScale;
  multiply.width = spec.all();
  INLAY_ASSIGN_OR_RETURN(
      inputs.multiply_,
      build.kernels.Choose("elementwise", ElementwiseTable(), multiply));
  return inputs;
}

TensorView PerLayerInputs::Place(Arena& arena, int64_t tokens) const {
  if (!present()) return {};
  return arena.TakeMatrix(tokens, look_up_.desc.width, DType::kF32);
}

absl::Status PerLayerInputs::Forward(const int32_t* ids,
                                     const TensorView& embeddings,
                                     const TensorView& converted,
                                     const TensorView& y,
                                     void* kernel_workspace,
                                     Stream& stream) const {
  if (convert_.present()) {
    INLAY_RETURN_IF_ERROR(convert_.Forward(embeddings, converted, stream));
  }
  INLAY_RETURN_IF_ERROR(
      projection_.Forward(convert_.present() ? converted : embeddings, {}, y,
                          kernel_workspace, stream));
  const TensorView slices =
      MatrixView(y.data, DType::kF32, y.elements() / width_, width_);
  INLAY_RETURN_IF_ERROR(norm_.Forward(slices, slices, stream));
  EmbeddingParams look_up;
  look_up.table = table_;
  look_up.ids = ids;
  look_up.scale = table_scale_;
  look_up.accumulate = true;
  look_up.y = y;
  INLAY_RETURN_IF_ERROR(look_up_.Run(look_up, stream));
  ElementwiseParams multiply;
  multiply.y = y;
  multiply.value = scale_;
  return multiply_.Run(multiply, stream);
}

absl::StatusOr<std::unique_ptr<Sublayer>> PerLayerBlock::Create(
    const PerLayerSpec& spec, ModelBuild& build) {
  auto block = std::make_unique<PerLayerBlock>();
  block->first_ = spec.index * spec.width;
  INLAY_ASSIGN_OR_RETURN(
      block->gate_,
      Linear::Create(spec.gate, LinearOutput::kActivation, build));
  // Where the activation reads what it multiplies by: beside the gate.
  INLAY_ASSIGN_OR_RETURN(block->copy_, Norm::Copy(spec.width, DType::kF32,
                                                  build.activation, build));
  ActivationDesc desc;
  desc.function = spec.activation;
  desc.gated = true;
  desc.width = spec.width;
  desc.activation = build.activation;
  INLAY_ASSIGN_OR_RETURN(
      block->activation_,
      build.kernels.Choose("activation", ActivationTable(), desc));
  INLAY_ASSIGN_OR_RETURN(
      block->output_, Linear::Create(spec.output, LinearOutput::kFloat, build));
  return std::unique_ptr<Sublayer>(std::move(block));
}

size_t PerLayerBlock::ScratchBytes(int64_t tokens) const {
  Arena arena(nullptr);
  const ActivationDesc& desc = activation_.desc;
  arena.TakeMatrix(tokens, 2 * desc.width, desc.activation);
  return arena.used();
}

size_t PerLayerBlock::KernelBytes(int64_t tokens, int64_t) const {
  return std::max(gate_.KernelBytes(tokens), output_.KernelBytes(tokens));
}

absl::Status PerLayerBlock::Forward(const Step& step, const BlockInput& x,
                                    const TensorView& residual,
                                    const TensorView& y) const {
  Arena arena(step.scratch);
  const ActivationDesc& desc = activation_.desc;
  const int64_t width = desc.width;
  const TensorView both =
      arena.TakeMatrix(x.hidden.rows(), 2 * width, desc.activation);
  ActivationParams activate;
  activate.x = both;
  activate.y = ColumnSlice(both, 0, width);
  INLAY_RETURN_IF_ERROR(x.Normalise(step.stream));
  INLAY_RETURN_IF_ERROR(gate_.Forward(x.normalised, {}, activate.y,
                                      step.kernel_workspace, step.stream));
  INLAY_RETURN_IF_ERROR(
      copy_.Forward(ColumnSlice(step.per_layer_inputs, first_, width),
                    ColumnSlice(both, width, width), step.stream));
  INLAY_RETURN_IF_ERROR(activation_.Run(activate, step.stream));
  return output_.Forward(activate.y, residual, y, step.kernel_workspace,
                         step.stream);
}

}  // namespace inlay
