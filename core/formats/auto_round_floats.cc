// AutoRound's checkpoints of floats. Of a layer with k inputs and n outputs, by
// packing_format:
//   auto_round:llm_compressor
//                   as compressed-tensors has them: weight_packed u8 [n, k / 2]
//                   with weight_scale u8 [n, k / 32] (MXFP4), or e4m3
//                   [n, k / 16] and weight_global_scale f32 [1], which divides
//                   (NVFP4); weight e4m3 [n, k] with weight_scale u8
//                   [n, k / 32] (MXFP8)
//   auto_round:fp8_static, auto_round:fp8
//                   weight e4m3 [n, k]; weight_scale [1], [n] or [n, 1], or
//                   weight_scale_inv by group_size [rows, columns]
// Which of these a layer is is seen from its tensors.
// Source: github.com/intel/auto-round (export/export_to_autoround:
// export_to_nvfp_mx.py, qlinear_fp.py, export_to_fp8.py).
#include "core/formats/auto_round_floats.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/fp8_layer.h"
#include "core/formats/mxfp4_layer.h"
#include "core/formats/nvfp4_layer.h"
#include "core/formats/stored_tensor.h"
#include "memory/status.h"

namespace inlay {
namespace {

void AddFloatLayer(const std::string& layer,
                   std::unique_ptr<const QuantizedLayer> made,
                   QuantizedLayers& found) {
  found.layers.push_back(std::move(made));
  for (const char* suffix :
       {".weight", ".weight_packed", ".weight_scale", ".weight_scale_inv",
        ".weight_global_scale", ".input_scale", ".input_global_scale"}) {
    found.consumed.push_back(layer + suffix);
  }
}

std::vector<std::string> LayersOfE4M3(const WeightSource& stored) {
  std::vector<std::string> layers = LayersWith(stored, ".weight");
  std::erase_if(layers, [&](const std::string& layer) {
    return stored.Find(layer + ".weight")->dtype != DType::kF8E4M3;
  });
  return layers;
}

// Whether one scale is of the whole tensor, as its shape says: [] or [1] where
// there are several outputs.
bool HasOneScale(const WeightSource& stored, const std::string& layer) {
  const WeightInfo* scales = stored.Find(layer + ".weight_scale");
  return scales != nullptr && scales->bytes == RowBytes(scales->dtype, 1);
}

}  // namespace

absl::Status AddAutoRoundMxLayers(
    const std::shared_ptr<const WeightSource>& stored, QuantizedLayers& found) {
  for (const std::string& layer : LayersWith(*stored, ".weight_packed")) {
    const bool is_nvfp4 =
        stored->Find(layer + ".weight_global_scale") != nullptr;
    INLAY_ASSIGN_OR_RETURN(
        auto made, is_nvfp4 ? MakeNvfp4Layer(stored, layer,
                                             {".weight_packed", ".weight_scale",
                                              ".weight_global_scale", true})
                            : MakeMxfp4Layer(stored, layer, ".weight_packed",
                                             ".weight_scale"));
    AddFloatLayer(layer, std::move(made), found);
  }
  for (const std::string& layer : LayersOfE4M3(*stored)) {
    INLAY_RETURN_IF_ERROR(
        StoredTensor(*stored, layer + ".weight_scale", {DType::kU8}).status());
    Fp8Scheme scheme;
    scheme.scale = ".weight_scale";
    scheme.grid = {1, 32};
    scheme.may_be_exponents = true;
    INLAY_ASSIGN_OR_RETURN(auto made, MakeFp8Layer(stored, layer, scheme));
    AddFloatLayer(layer, std::move(made), found);
  }
  return absl::OkStatus();
}

absl::Status AddAutoRoundFp8Layers(
    const std::shared_ptr<const WeightSource>& stored,
    const std::optional<ScaleGrid>& block, InputCodes input_codes,
    QuantizedLayers& found) {
  for (const std::string& layer : LayersOfE4M3(*stored)) {
    Fp8Scheme scheme;
    scheme.input_codes = input_codes;
    if (block.has_value()) {
      scheme.scale = ".weight_scale_inv";
      scheme.grid = *block;
    } else {
      scheme.scale = ".weight_scale";
      scheme.grid = {HasOneScale(*stored, layer) ? 0 : 1, 0};
    }
    INLAY_ASSIGN_OR_RETURN(auto made, MakeFp8Layer(stored, layer, scheme));
    AddFloatLayer(layer, std::move(made), found);
  }
  return absl::OkStatus();
}

}  // namespace inlay
