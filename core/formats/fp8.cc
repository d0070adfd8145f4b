// FP8 checkpoints (quant_method "fp8": DeepSeek-V3's, and those of one scale a
// tensor). Of a layer with k inputs and n outputs:
//   weight            e4m3 [n, k]
//   weight_scale_inv  [n / rows, k / columns] with weight_block_size [rows,
//                     columns], rounded up; else one element
//   weight_scale      the same by another name, where there are no blocks
//   input_scale       for activation_scheme "static"
//   weight[o][i] = weight_scale_inv[o / rows][i / columns] * e4m3
// Source: the model card and weight files of DeepSeek-V3; transformers'
// FineGrainedFP8Config.
#include <utility>

#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/row_major_layer.h"
#include "core/formats/stored_tensor.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct Fp8Config {
  bool blocks = false;
  ScaleGrid block;  // of blocks
};

absl::StatusOr<Fp8Config> ReadFp8Config(const Json& config) {
  Fp8Config out;
  INLAY_ASSIGN_OR_RETURN(const std::string format,
                         JsonString(config, "fmt", "e4m3"));
  if (format != "e4m3") return UnsupportedSetting("fmt", format, "e4m3");
  INLAY_ASSIGN_OR_RETURN(const std::string scheme,
                         JsonString(config, "activation_scheme", "dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return UnsupportedSetting("activation_scheme", scheme, "dynamic, static");
  }
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  INLAY_RETURN_IF_ERROR(CheckNames(config, "ignored_layers"));
  const Json* block = JsonFind(config, "weight_block_size");
  if (block == nullptr) return out;
  INLAY_ASSIGN_OR_RETURN(out.block, BlockSetting("weight_block_size", *block));
  out.blocks = true;
  return out;
}

absl::StatusOr<std::string> Fp8ScaleName(const WeightSource& stored,
                                         const Fp8Config& config,
                                         const std::string& layer) {
  const std::string inverse = layer + ".weight_scale_inv";
  if (config.blocks || stored.Find(inverse) != nullptr) return inverse;
  return layer + ".weight_scale";
}

absl::Status AddFp8Layer(const std::shared_ptr<const WeightSource>& stored,
                         const Fp8Config& config, const std::string& layer,
                         QuantizedLayers& found) {
  RowMajorTensors tensors;
  tensors.kind = CodeKind::kF8;
  tensors.input_codes = InputCodes::kFp8;
  INLAY_ASSIGN_OR_RETURN(tensors.codes, StoredMatrix(*stored, layer + ".weight",
                                                     {DType::kF8E4M3}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = tensors.codes->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_ASSIGN_OR_RETURN(const std::string scale,
                         Fp8ScaleName(*stored, config, layer));
  INLAY_ASSIGN_OR_RETURN(tensors.scales,
                         StoredTensor(*stored, scale, kScaleDTypes));
  tensors.grid = config.blocks ? config.block : ScaleGrid{n, k};
  INLAY_RETURN_IF_ERROR(CheckGrid(*tensors.scales, tensors.grid, n, k));
  INLAY_RETURN_IF_ERROR(CheckInputScale(*stored, layer));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, tensors.grid.columns));
  found.layers.push_back(std::make_unique<RowMajorLayer>(
      layer, n, std::move(grouping), tensors, stored));
  found.consumed.insert(found.consumed.end(),
                        {layer + ".weight", scale, layer + ".input_scale"});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindFp8Layers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const Fp8Config settings, ReadFp8Config(config));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    if (stored->Find(layer + ".weight")->dtype != DType::kF8E4M3) continue;
    INLAY_RETURN_IF_ERROR(AddFp8Layer(stored, settings, layer, found));
  }
  return found;
}

}  // namespace inlay
