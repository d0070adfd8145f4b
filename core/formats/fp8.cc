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

#include "core/formats/fp8_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
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

Fp8Scheme SchemeOf(const WeightSource& stored, const Fp8Config& config,
                   const std::string& layer) {
  const bool is_inverse =
      config.blocks || stored.Find(layer + ".weight_scale_inv") != nullptr;
  Fp8Scheme scheme;
  scheme.scale = is_inverse ? ".weight_scale_inv" : ".weight_scale";
  scheme.grid = config.blocks ? config.block : ScaleGrid{0, 0};
  scheme.input_codes = InputCodes::kFp8;
  return scheme;
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindFp8Layers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const Fp8Config settings, ReadFp8Config(config));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    if (stored->Find(layer + ".weight")->dtype != DType::kF8E4M3) continue;
    const Fp8Scheme scheme = SchemeOf(*stored, settings, layer);
    INLAY_ASSIGN_OR_RETURN(auto made, MakeFp8Layer(stored, layer, scheme));
    found.layers.push_back(std::move(made));
    for (const std::string& suffix :
         {std::string(".weight"), scheme.scale, std::string(".input_scale")}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
