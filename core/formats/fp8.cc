// FP8 checkpoints (quant_method "fp8": DeepSeek-V3's and V4's, MXFP8, and those
// of one scale a tensor). Of a layer with k inputs and n outputs:
//   weight            e4m3 [n, k]
//   weight_scale_inv  [n / rows, k / columns] with weight_block_size [rows,
//                     columns], rounded up; else one element. Floats, or with
//                     scale_fmt "ue8m0" exponents, a byte each
//   scale             the same by V4's name
//   weight_scale      and by another, where there are no blocks
//   input_scale       for activation_scheme "static"
//   weight[o][i] = weight_scale_inv[o / rows][i / columns] * e4m3
// V4's experts (expert_dtype "fp4") are in MXFP4: mxfp4_layer.h.
// Source: the model card and weight files of DeepSeek-V3; transformers'
// FineGrainedFP8Config and what it takes for V4 (finegrained_fp8.py).
#include <utility>

#include "core/formats/fp8_layer.h"
#include "core/formats/mxfp4_layer.h"
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
  INLAY_ASSIGN_OR_RETURN(const std::string scales,
                         JsonString(config, "scale_fmt", "float"));
  if (scales != "float" && scales != "ue8m0") {
    return UnsupportedSetting("scale_fmt", scales, "float, ue8m0");
  }
  INLAY_ASSIGN_OR_RETURN(const std::string experts,
                         JsonString(config, "expert_dtype", "fp8"));
  if (experts != "fp8" && experts != "fp4") {
    return UnsupportedSetting("expert_dtype", experts, "fp4, fp8");
  }
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  INLAY_RETURN_IF_ERROR(CheckNames(config, "ignored_layers"));
  const Json* block = JsonFind(config, "weight_block_size");
  if (block == nullptr) return out;
  INLAY_ASSIGN_OR_RETURN(out.block, BlockSetting("weight_block_size", *block));
  out.blocks = true;
  return out;
}

// The suffix of the layer's scales; where none is there, of what is missing.
std::string ScaleOf(const WeightSource& stored, const Fp8Config& config,
                    const std::string& layer) {
  const std::string usual =
      config.blocks ? ".weight_scale_inv" : ".weight_scale";
  for (const std::string& suffix :
       {std::string(".weight_scale_inv"), usual, std::string(".scale")}) {
    if (stored.Find(layer + suffix) != nullptr) return suffix;
  }
  return usual;
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindFp8Layers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const Fp8Config settings, ReadFp8Config(config));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    const DType dtype = stored->Find(layer + ".weight")->dtype;
    const bool is_fp4 = dtype == DType::kI8;
    const std::string scale = ScaleOf(*stored, settings, layer);
    if (is_fp4 && stored->Find(layer + scale) == nullptr) continue;
    if (!is_fp4 && dtype != DType::kF8E4M3) continue;
    if (is_fp4) {
      INLAY_ASSIGN_OR_RETURN(auto made,
                             MakeMxfp4Layer(stored, layer, ".weight", scale));
      found.layers.push_back(std::move(made));
    } else {
      Fp8Scheme scheme;
      scheme.scale = scale;
      scheme.grid = settings.blocks ? settings.block : ScaleGrid{0, 0};
      scheme.may_be_exponents = true;
      scheme.input_codes = InputCodes::kFp8;
      INLAY_ASSIGN_OR_RETURN(auto made, MakeFp8Layer(stored, layer, scheme));
      found.layers.push_back(std::move(made));
    }
    for (const std::string& suffix :
         {std::string(".weight"), scale, std::string(".input_scale")}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
