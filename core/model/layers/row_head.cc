#include "core/model/layers/row_head.h"

#include <algorithm>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<RowHead::Layer> RowHead::CreateLayer(const HeadLayerSpec& spec,
                                                    LinearOutput output,
                                                    ModelBuild& build) {
  Layer layer;
  layer.dtype = output == LinearOutput::kFloat ? DType::kF32 : build.activation;
  INLAY_ASSIGN_OR_RETURN(layer.linear,
                         Linear::Create(spec.linear, output, build));
  const int64_t width = spec.linear.n;
  if (spec.tanh) {
    // A softcap of 1 is tanh.
    INLAY_ASSIGN_OR_RETURN(
        layer.tanh, build.kernels.Choose("elementwise", ElementwiseTable(),
                                         ElementwiseDesc{Elementwise::kSoftcap,
                                                         width, layer.dtype}));
  }
  if (spec.activation.has_value()) {
    ActivationDesc desc;
    desc.function = *spec.activation;
    desc.width = width;
    desc.activation = layer.dtype;
    INLAY_ASSIGN_OR_RETURN(
        layer.activation,
        build.kernels.Choose("activation", ActivationTable(), desc));
  }
  INLAY_ASSIGN_OR_RETURN(layer.norm, Norm::Create(spec.norm, width, layer.dtype,
                                                  layer.dtype, build));
  return layer;
}

absl::StatusOr<RowHead> RowHead::Create(absl::Span<const HeadLayerSpec> specs,
                                        LinearOutput output,
                                        ModelBuild& build) {
  RowHead head;
  for (size_t i = 0; i < specs.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(
        head.layers_.emplace_back(),
        CreateLayer(specs[i],
                    i + 1 == specs.size() ? output : LinearOutput::kActivation,
                    build));
  }
  return head;
}

std::vector<TensorView> RowHead::Place(Arena& arena, int64_t rows) const {
  std::vector<TensorView> views;
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    views.push_back(
        arena.TakeMatrix(rows, layers_[i].linear.outputs(), layers_[i].dtype));
  }
  return views;
}

size_t RowHead::ScratchBytes(int64_t rows) const {
  Arena arena(nullptr);
  Place(arena, rows);
  return arena.used();
}

size_t RowHead::KernelBytes(int64_t rows) const {
  size_t bytes = 0;
  for (const Layer& layer : layers_) {
    bytes = std::max(bytes, layer.linear.KernelBytes(rows));
  }
  return bytes;
}

absl::Status RowHead::Forward(const TensorView& x, const TensorView& y,
                              std::byte* scratch, void* kernel_workspace,
                              Stream& stream) const {
  Arena arena(scratch);
  std::vector<TensorView> outputs = Place(arena, x.rows());
  outputs.push_back(y);
  TensorView input = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const TensorView& output = outputs[i];
    INLAY_RETURN_IF_ERROR(
        layer.linear.Forward(input, {}, output, kernel_workspace, stream));
    if (layer.tanh.row != nullptr) {
      INLAY_RETURN_IF_ERROR(layer.tanh.Run({output, {}, 1.0f}, stream));
    }
    if (layer.activation.row != nullptr) {
      INLAY_RETURN_IF_ERROR(layer.activation.Run({output, output}, stream));
    }
    if (layer.norm.present()) {
      INLAY_RETURN_IF_ERROR(layer.norm.Forward(output, output, stream));
    }
    input = output;
  }
  return absl::OkStatus();
}

}  // namespace inlay
