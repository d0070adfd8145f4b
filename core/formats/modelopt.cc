// Checkpoints of TensorRT Model Optimizer (quant_method "modelopt"). Of a layer
// with k inputs and n outputs, by its quant_algo:
//   FP8              weight e4m3 [n, k]; weight_scale f32 []; input_scale f32
//                    [] where inputs are in e4m3, too
//   FP8_PER_CHANNEL_PER_TOKEN
//                    weight_scale f32 [n]; inputs in e4m3 with a scale a token
//   FP8_PB_WO        weight_scale f32 [n / 128, 1, k / 128, 1], or
//                    weight_scale_inv [n / 128, k / 128], rounded up; inputs
//                    stay as they are
//   weight[o][i] = weight_scale * e4m3
//   NVFP4            weight u8 [n, k / 2], codes of e2m1, the first in the low
//                    nibble; weight_scale e4m3 [n, k / 16]; weight_scale_2 f32
//                    []; input_scale of inputs in NVFP4, which are not rounded
//                    here
//   W4A16_NVFP4      the same; inputs stay as they are
//   weight[o][i] = weight_scale_2 * weight_scale[o][i / 16] * e2m1
// MIXED_PRECISION: "quantized_layers" says it of each layer. Its names are
// those of modules, which tensors' may differ from: layers that are not in it
// are of the first of its algorithms that their tensors fit.
// Settings are in config.json's "quantization_config" or, of earlier versions,
// in hf_quant_config.json's "quantization" (model_files.cc).
// Source: github.com/NVIDIA/TensorRT-Model-Optimizer (export/quant_utils.py,
// unified_export_hf.py, convert_hf_config.py); of the shape of FP8_PB_WO's
// scales, vLLM's modelopt.py.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/formats/describe.h"
#include "core/formats/fp8_layer.h"
#include "core/formats/nvfp4_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

enum class ModelOptKind : uint8_t { kFp8, kFp8Channels, kFp8Blocks, kNvfp4 };

struct ModelOptAlgorithm {
  std::string_view name;
  ModelOptKind kind;
  std::optional<int64_t> group_size;  // the only one
};

constexpr ModelOptAlgorithm kModelOptAlgorithms[] = {
    {"FP8", ModelOptKind::kFp8, {}},
    {"FP8_PER_CHANNEL_PER_TOKEN", ModelOptKind::kFp8Channels, {}},
    {"FP8_PB_WO", ModelOptKind::kFp8Blocks, 128},
    {"NVFP4", ModelOptKind::kNvfp4, 16},
    {"W4A16_NVFP4", ModelOptKind::kNvfp4, 16},
};
constexpr char kModelOptSupported[] =
    "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4";

// Of a checkpoint.
struct ModelOptPlan {
  std::set<ModelOptKind> kinds;
  std::map<std::string, ModelOptKind> layers;  // of mixed ones
};

// Some come in lower case.
absl::StatusOr<std::string> ModelOptName(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         JsonString(config, "quant_algo", ""));
  return absl::AsciiStrToUpper(name);
}

// `owner`: what the errors' keys begin with.
absl::StatusOr<ModelOptKind> ReadModelOptKind(const Json& config,
                                              const std::string& owner,
                                              std::string_view allowed,
                                              std::string_view place) {
  INLAY_ASSIGN_OR_RETURN(const std::string name, ModelOptName(config));
  const auto* const found = std::find_if(
      std::begin(kModelOptAlgorithms), std::end(kModelOptAlgorithms),
      [&](const ModelOptAlgorithm& row) { return row.name == name; });
  if (found == std::end(kModelOptAlgorithms)) {
    return UnsupportedSetting(owner + "quant_algo", name, allowed, place);
  }
  if (found->group_size.has_value()) {
    INLAY_ASSIGN_OR_RETURN(
        const int64_t size,
        JsonInt(config, "group_size", *found->group_size, 0, 1 << 20));
    if (size != *found->group_size) {
      return UnsupportedSetting(owner + "group_size", std::to_string(size),
                                std::to_string(*found->group_size), place);
    }
  }
  INLAY_ASSIGN_OR_RETURN(const bool scales_inputs,
                         JsonBool(config, "pre_quant_scale", false));
  if (scales_inputs) {
    return UnsupportedSetting(owner + "pre_quant_scale", "true", "false",
                              place);
  }
  return found->kind;
}

absl::StatusOr<ModelOptPlan> ReadModelOptPlan(const Json& config,
                                              std::string_view place) {
  ModelOptPlan plan;
  INLAY_RETURN_IF_ERROR(CheckNames(config, "ignore", place));
  INLAY_RETURN_IF_ERROR(CheckNames(config, "exclude_modules", place));
  INLAY_ASSIGN_OR_RETURN(const std::string name, ModelOptName(config));
  if (name != "MIXED_PRECISION") {
    INLAY_ASSIGN_OR_RETURN(
        const ModelOptKind kind,
        ReadModelOptKind(
            config, "",
            FormattedString("%s, MIXED_PRECISION", kModelOptSupported), place));
    plan.kinds.insert(kind);
    return plan;
  }
  const Json* layers = JsonFind(config, "quantized_layers");
  if (layers == nullptr || !layers->is_object() || layers->empty()) {
    return BadSetting("quantized_layers", layers == nullptr ? Json() : *layers,
                      "an object of one layer or more", place);
  }
  for (const auto& [layer, own] : layers->items()) {
    if (!own.is_object()) {
      return BadSetting(FormattedString("quantized_layers: %s", Quoted(layer)),
                        own, "an object", place);
    }
    INLAY_ASSIGN_OR_RETURN(
        const ModelOptKind kind,
        ReadModelOptKind(
            own, FormattedString("quantized_layers: %s: ", Quoted(layer)),
            kModelOptSupported, place));
    plan.kinds.insert(kind);
    plan.layers[layer] = kind;
  }
  return plan;
}

bool HasE4M3(const WeightSource& stored, const std::string& layer) {
  const WeightInfo* weight = stored.Find(layer + ".weight");
  return weight != nullptr && weight->dtype == DType::kF8E4M3;
}

// What is quantised by the looks of it, where its kind is there at all.
std::set<std::string> ModelOptLayers(const WeightSource& stored,
                                     const ModelOptPlan& plan) {
  std::set<std::string> layers;
  if (plan.kinds.contains(ModelOptKind::kNvfp4)) {
    for (std::string& layer : LayersWith(stored, ".weight_scale_2")) {
      layers.insert(std::move(layer));
    }
  }
  if (plan.kinds == std::set{ModelOptKind::kNvfp4}) return layers;
  for (std::string& layer : LayersWith(stored, ".weight")) {
    if (HasE4M3(stored, layer)) layers.insert(std::move(layer));
  }
  return layers;
}

Fp8Scheme ModelOptScheme(const WeightSource& stored, const std::string& layer,
                         ModelOptKind kind) {
  Fp8Scheme scheme;
  scheme.scale = ".weight_scale";
  if (kind == ModelOptKind::kFp8Blocks) {
    scheme.grid = {128, 128};
    scheme.scale_has_gaps = true;
    if (stored.Find(layer + ".weight_scale_inv") != nullptr) {
      scheme.scale = ".weight_scale_inv";
    }
    return scheme;
  }
  const bool is_tensor = kind == ModelOptKind::kFp8;
  scheme.grid = {is_tensor ? 0 : 1, 0};
  if (!is_tensor || stored.Find(layer + ".input_scale") != nullptr) {
    scheme.input_codes = InputCodes::kFp8;
  }
  return scheme;
}

absl::Status AddModelOptLayer(const std::shared_ptr<const WeightSource>& stored,
                              const std::string& layer, ModelOptKind kind,
                              QuantizedLayers& found) {
  std::vector<std::string> suffixes = {".weight", ".input_scale"};
  if (kind == ModelOptKind::kNvfp4) {
    INLAY_ASSIGN_OR_RETURN(
        auto made,
        MakeNvfp4Layer(stored, layer,
                       {".weight", ".weight_scale", ".weight_scale_2"}));
    INLAY_RETURN_IF_ERROR(CheckInputScale(*stored, layer));
    found.layers.push_back(std::move(made));
    suffixes.insert(suffixes.end(), {".weight_scale", ".weight_scale_2"});
  } else {
    const Fp8Scheme scheme = ModelOptScheme(*stored, layer, kind);
    INLAY_ASSIGN_OR_RETURN(auto made, MakeFp8Layer(stored, layer, scheme));
    INLAY_RETURN_IF_ERROR(
        CheckFiniteScales(*stored, *stored->Find(layer + scheme.scale)));
    found.layers.push_back(std::move(made));
    suffixes.push_back(scheme.scale);
  }
  for (const std::string& suffix : suffixes) {
    found.consumed.push_back(layer + suffix);
  }
  return absl::OkStatus();
}

// By the first kind that the tensors fit, else why the first does not.
absl::Status AddUnlistedLayer(const std::shared_ptr<const WeightSource>& stored,
                              const std::string& layer,
                              const ModelOptPlan& plan,
                              QuantizedLayers& found) {
  const bool is_fp8 = HasE4M3(*stored, layer);
  absl::Status first;
  for (const ModelOptKind kind : plan.kinds) {
    const bool fits = is_fp8 != (kind == ModelOptKind::kNvfp4);
    if (!fits && plan.kinds.size() > 1) continue;
    const absl::Status added = AddModelOptLayer(stored, layer, kind, found);
    if (added.ok()) return added;
    first.Update(added);
  }
  return first;
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindModelOptLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view place) {
  if (!RoundsWeights(config)) return QuantizedLayers();
  INLAY_ASSIGN_OR_RETURN(const ModelOptPlan plan,
                         ReadModelOptPlan(config, place));
  QuantizedLayers found;
  for (const std::string& layer : ModelOptLayers(*stored, plan)) {
    const auto listed = plan.layers.find(layer);
    INLAY_RETURN_IF_ERROR(
        listed == plan.layers.end()
            ? AddUnlistedLayer(stored, layer, plan, found)
            : AddModelOptLayer(stored, layer, listed->second, found));
  }
  return found;
}

}  // namespace inlay
