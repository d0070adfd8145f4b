// NVFP4 checkpoints of TensorRT Model Optimizer (quant_method "modelopt",
// quant_algo "NVFP4", or "W4A16_NVFP4" where inputs stay as they are). Of a
// layer with k inputs and n outputs:
//   weight          u8 [n, k / 2], codes of e2m1, the first in the low nibble
//   weight_scale    e4m3 [n, k / 16]
//   weight_scale_2  f32 []
//   input_scale     of inputs in NVFP4, which are not rounded here
//   weight[o][i] = weight_scale_2 * weight_scale[o][i / 16] * e2m1
// Settings are in config.json's "quantization_config" or, of earlier versions,
// in hf_quant_config.json's "quantization" (model_files.cc).
// Source: github.com/NVIDIA/TensorRT-Model-Optimizer (export/quant_utils.py).
#include <utility>

#include "core/formats/nvfp4_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/stored_tensor.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr const char* kModelOptTensors[] = {".weight", ".weight_scale",
                                            ".weight_scale_2", ".input_scale"};

// The tensors are plain where a checkpoint rounds its KV cache alone.
bool RoundsWeights(const Json& config) {
  return JsonFind(config, "quant_algo") != nullptr ||
         JsonFind(config, "config_groups") != nullptr;
}

absl::Status CheckModelOptConfig(const Json& config, std::string_view place) {
  INLAY_ASSIGN_OR_RETURN(const std::string algorithm,
                         JsonString(config, "quant_algo", ""));
  if (algorithm != "NVFP4" && algorithm != "W4A16_NVFP4") {
    return UnsupportedSetting("quant_algo", algorithm, "NVFP4, W4A16_NVFP4",
                              place);
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t group_size,
                         JsonInt(config, "group_size", 16, 0, 1 << 20));
  if (group_size != 16) {
    return UnsupportedSetting("group_size", std::to_string(group_size), "16",
                              place);
  }
  INLAY_RETURN_IF_ERROR(CheckNames(config, "ignore", place));
  return CheckNames(config, "exclude_modules", place);
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindModelOptLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view place) {
  if (!RoundsWeights(config)) return QuantizedLayers();
  INLAY_RETURN_IF_ERROR(CheckModelOptConfig(config, place));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight_scale_2")) {
    INLAY_ASSIGN_OR_RETURN(
        auto made,
        MakeNvfp4Layer(stored, layer,
                       {".weight", ".weight_scale", ".weight_scale_2"}));
    INLAY_RETURN_IF_ERROR(CheckInputScale(*stored, layer));
    found.layers.push_back(std::move(made));
    for (const char* suffix : kModelOptTensors) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
