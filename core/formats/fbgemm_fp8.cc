// FBGEMM's FP8 checkpoints (quant_method "fbgemm_fp8": Llama 3.1 405B FP8). Of
// a layer with k inputs and n outputs:
//   weight        e4m3 [n, k]
//   weight_scale  [n, 1]
//   weight[o][i] = weight_scale[o] * e4m3
// Inputs are in e4m3 with a scale a token, of at most activation_scale_ub /
// 448: what is above it is cut off there, and not here.
// Source: transformers' FbgemmFp8Config and FbgemmFp8Linear (fbgemm_fp8.py);
// earlier files have their bound as input_scale_ub, too.
#include <limits>
#include <string>

#include "core/formats/fp8_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/stored_tensor.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<QuantizedLayers> FindFbgemmFp8Layers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_RETURN_IF_ERROR(JsonNumber(config, "activation_scale_ub", 1200.0, 0.0,
                                   std::numeric_limits<float>::max())
                            .status());
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    if (stored->Find(layer + ".weight")->dtype != DType::kF8E4M3) continue;
    Fp8Scheme scheme;
    scheme.scale = ".weight_scale";
    scheme.grid = {1, 0};
    scheme.input_codes = InputCodes::kFp8;
    INLAY_ASSIGN_OR_RETURN(auto made, MakeFp8Layer(stored, layer, scheme));
    found.layers.push_back(std::move(made));
    for (const char* suffix :
         {".weight", ".weight_scale", ".input_scale", ".input_scale_ub"}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
