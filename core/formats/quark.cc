// AMD Quark's checkpoints (quant_method "quark"). Of a layer with k inputs and
// n outputs, by the dtype of its weights:
//   fp8_e4m3      weight e4m3 [n, k]; weight_scale [] (per_tensor) or [n]
//                 (per_channel)
//   int8          weight i8 [n, k]; weight_scale likewise, weight_zero_point
//                 i8 as it
//   fp4           weight u8 [n, k / 2], codes of e2m1, the first in the low
//                 nibble; weight_scale u8 [n, k / 32], exponents: MXFP4
//   int4, uint4   weight i32 [k, n / 8], weight_scale [k / group_size, n] and
//                 weight_zero_point i32 [k / group_size, n / 8]: awq_layer.h's
//                 gemm, int4 as two's complement
//   weight[o][i] = weight_scale * (code - weight_zero_point)
// "global_quant_config" is of all layers, "layer_quant_config" of some by
// patterns of their names, "layer_type_quant_config" by their classes; which a
// layer is of is seen from its tensors, as in compressed_tensors.cc.
// Source: PyPI's amd-quark (quark/torch/export/nn/modules, utils/pack.py,
// quantization/config).
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/awq_layer.h"
#include "core/formats/describe.h"
#include "core/formats/fp8_layer.h"
#include "core/formats/integer_settings.h"
#include "core/formats/mxfp4_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/row_major_layer.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

enum class QuarkType : uint8_t { kFp8, kInt8, kMxfp4, kInt4, kUint4 };

// The weights of one config.
struct QuarkScheme {
  QuarkType type = QuarkType::kFp8;
  bool channels = false;   // of fp8 and int8: a scale each, else one
  int64_t group_size = 0;  // of int4 and uint4
  InputCodes input_codes = InputCodes::kNone;

  bool operator==(const QuarkScheme&) const = default;
};

struct QuarkPlan {
  std::vector<QuarkScheme> schemes;
  bool in_order = false;  // fields of int4
};

constexpr char kQuarkTypes[] = "fp4, fp8_e4m3, int4, int8, uint4";

absl::StatusOr<QuarkType> QuarkTypeOf(const std::string& name,
                                      std::string_view place) {
  if (name == "fp8_e4m3") return QuarkType::kFp8;
  if (name == "int8") return QuarkType::kInt8;
  if (name == "fp4") return QuarkType::kMxfp4;
  if (name == "int4") return QuarkType::kInt4;
  if (name == "uint4") return QuarkType::kUint4;
  return UnsupportedSetting("dtype", name, kQuarkTypes, place);
}

// `allowed`: the axes that stand for the same.
absl::Status CheckQuarkAxis(const Json& weight,
                            absl::Span<const int64_t> allowed,
                            std::string_view place) {
  INLAY_ASSIGN_OR_RETURN(const int64_t axis,
                         JsonInt(weight, "ch_axis", allowed.front(), -8, 8));
  if (std::find(allowed.begin(), allowed.end(), axis) != allowed.end()) {
    return absl::OkStatus();
  }
  return UnsupportedSetting("ch_axis", FormattedString("%d", axis),
                            FormattedString("%d", allowed.front()), place);
}

// Of whole tensors or channels.
absl::Status ReadQuarkScales(const Json& weight, std::string_view place,
                             QuarkScheme& scheme) {
  INLAY_ASSIGN_OR_RETURN(const std::string kind,
                         JsonString(weight, "qscheme", "per_tensor"));
  if (kind != "per_tensor" && kind != "per_channel") {
    return UnsupportedSetting("qscheme", kind, "per_channel, per_tensor",
                              place);
  }
  scheme.channels = kind == "per_channel";
  return scheme.channels ? CheckQuarkAxis(weight, {0, -2}, place)
                         : absl::OkStatus();
}

absl::Status ReadQuarkGroups(const Json& weight, std::string_view place,
                             QuarkScheme& scheme) {
  INLAY_ASSIGN_OR_RETURN(const std::string kind,
                         JsonString(weight, "qscheme", "per_group"));
  if (kind != "per_group") {
    return UnsupportedSetting("qscheme", kind, "per_group", place);
  }
  INLAY_RETURN_IF_ERROR(CheckQuarkAxis(weight, {1, -1}, place));
  INLAY_ASSIGN_OR_RETURN(scheme.group_size,
                         GroupSizeSetting(weight, 32, place));
  INLAY_ASSIGN_OR_RETURN(const std::string scales,
                         JsonString(weight, "scale_format", ""));
  const bool is_mxfp4 = scheme.type == QuarkType::kMxfp4;
  if (is_mxfp4 && (scales != "e8m0" || scheme.group_size != 32)) {
    return UnsupportedSetting(
        "scale_format",
        FormattedString("%s of groups of %d", scales, scheme.group_size),
        "e8m0 of groups of 32 for fp4", place);
  }
  if (!is_mxfp4 && !scales.empty() && scales != "float32") {
    return UnsupportedSetting("scale_format", scales, "null, float32", place);
  }
  INLAY_ASSIGN_OR_RETURN(const std::string zeros,
                         JsonString(weight, "zero_point_type", "int32"));
  if (zeros != "int32") {
    return UnsupportedSetting("zero_point_type", zeros, "int32", place);
  }
  return absl::OkStatus();
}

// What inputs are rounded to, where kernels may do so.
absl::StatusOr<InputCodes> ReadQuarkInputs(const Json& config) {
  const Json* inputs = JsonFind(config, "input_tensors");
  if (inputs == nullptr || !inputs->is_object()) return InputCodes::kNone;
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(*inputs, "dtype", ""));
  INLAY_ASSIGN_OR_RETURN(const std::string kind,
                         JsonString(*inputs, "qscheme", "per_tensor"));
  INLAY_ASSIGN_OR_RETURN(const bool dynamic,
                         JsonBool(*inputs, "is_dynamic", false));
  INLAY_ASSIGN_OR_RETURN(const bool symmetric,
                         JsonBool(*inputs, "symmetric", false));
  const bool by_token = kind == "per_channel" && dynamic;
  if (type == "fp8_e4m3" && (by_token || kind == "per_tensor")) {
    return InputCodes::kFp8;
  }
  return type == "int8" && by_token && symmetric ? InputCodes::kInt8
                                                 : InputCodes::kNone;
}

// Of one config, where it rounds weights.
absl::Status AddQuarkScheme(const Json& config, std::string_view place,
                            QuarkPlan& plan) {
  if (!config.is_object()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s is %s; it must be an object", place, config.type_name()));
  }
  INLAY_RETURN_IF_ERROR(CheckAbsent(config, "bias", place));
  const Json* weight = JsonFind(config, "weight");
  if (weight == nullptr) return absl::OkStatus();
  // Scales that are rounded themselves make it a list.
  if (!weight->is_object()) {
    return UnsupportedSetting("weight", ShownJson(*weight), "one spec", place);
  }
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(*weight, "dtype", ""));
  QuarkScheme scheme;
  INLAY_ASSIGN_OR_RETURN(scheme.type, QuarkTypeOf(type, place));
  INLAY_RETURN_IF_ERROR(CheckAbsent(*weight, "is_dynamic", place));
  const bool is_whole =
      scheme.type == QuarkType::kFp8 || scheme.type == QuarkType::kInt8;
  INLAY_RETURN_IF_ERROR(is_whole ? ReadQuarkScales(*weight, place, scheme)
                                 : ReadQuarkGroups(*weight, place, scheme));
  if (is_whole) {
    INLAY_ASSIGN_OR_RETURN(scheme.input_codes, ReadQuarkInputs(config));
  }
  if (std::find(plan.schemes.begin(), plan.schemes.end(), scheme) ==
      plan.schemes.end()) {
    plan.schemes.push_back(scheme);
  }
  return absl::OkStatus();
}

absl::Status AddQuarkSchemes(const Json& config, QuarkPlan& plan) {
  const Json* global = JsonFind(config, "global_quant_config");
  if (global != nullptr) {
    INLAY_RETURN_IF_ERROR(AddQuarkScheme(
        *global, FormattedString("%s's global_quant_config", kConfigSettings),
        plan));
  }
  for (const char* key : {"layer_quant_config", "layer_type_quant_config"}) {
    const Json* layers = JsonFind(config, key);
    if (layers == nullptr) continue;
    if (!layers->is_object()) return BadSetting(key, *layers, "an object");
    for (const auto& [name, own] : layers->items()) {
      if (own.is_null()) continue;
      INLAY_RETURN_IF_ERROR(AddQuarkScheme(
          own,
          FormattedString("%s's %s: %s", kConfigSettings, key, Quoted(name)),
          plan));
    }
  }
  return absl::OkStatus();
}

// One object or a list of them: none may be a rotation that is not all in the
// weights.
absl::Status CheckQuarkAlgorithms(const Json& config, const char* key) {
  const Json* algorithms = JsonFind(config, key);
  if (algorithms == nullptr) return absl::OkStatus();
  if (!algorithms->is_structured()) {
    return BadSetting(key, *algorithms, "a list of objects");
  }
  const Json one = Json::array({*algorithms});
  const std::string place = FormattedString("%s's %s", kConfigSettings, key);
  for (const Json& algorithm : algorithms->is_array() ? *algorithms : one) {
    for (const char* turned :
         {"r3", "r4", "online_r1_rotation", "online_had"}) {
      INLAY_RETURN_IF_ERROR(CheckAbsent(algorithm, turned, place));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<QuarkPlan> ReadQuarkPlan(const Json& config) {
  QuarkPlan plan;
  INLAY_RETURN_IF_ERROR(CheckNames(config, "exclude"));
  for (const char* key : {"algo_config", "pre_quant_opt_config"}) {
    INLAY_RETURN_IF_ERROR(CheckQuarkAlgorithms(config, key));
  }
  if (const Json* written = JsonFind(config, "export"); written != nullptr) {
    INLAY_ASSIGN_OR_RETURN(
        const std::string weights,
        JsonString(*written, "weight_format", "real_quantized"));
    if (weights != "real_quantized") {
      return UnsupportedSetting("export: weight_format", weights,
                                "real_quantized");
    }
    INLAY_ASSIGN_OR_RETURN(const std::string pack,
                           JsonString(*written, "pack_method", "reorder"));
    if (pack != "reorder" && pack != "order") {
      return UnsupportedSetting("export: pack_method", pack, "order, reorder");
    }
    plan.in_order = pack == "order";
  }
  INLAY_RETURN_IF_ERROR(AddQuarkSchemes(config, plan));
  return plan;
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeQuarkInt8Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const QuarkScheme& scheme) {
  RowMajorTensors tensors;
  tensors.kind = CodeKind::kI8;
  tensors.input_codes = scheme.input_codes;
  INLAY_ASSIGN_OR_RETURN(
      tensors.codes, StoredMatrix(*stored, layer + ".weight", {DType::kI8}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = tensors.codes->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  tensors.grid = {scheme.channels ? 1 : n, k};
  INLAY_ASSIGN_OR_RETURN(
      tensors.scales,
      StoredTensor(*stored, layer + ".weight_scale", kScaleDTypes));
  INLAY_RETURN_IF_ERROR(CheckGrid(*tensors.scales, tensors.grid, n, k));
  const std::string zeros = layer + ".weight_zero_point";
  if (stored->Find(zeros) != nullptr) {
    INLAY_ASSIGN_OR_RETURN(tensors.zeros,
                           StoredTensor(*stored, zeros, {DType::kI8}));
    INLAY_RETURN_IF_ERROR(CheckGrid(*tensors.zeros, tensors.grid, n, k));
  }
  INLAY_RETURN_IF_ERROR(CheckInputScale(*stored, layer));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping, ContiguousGroups(layer, k, k));
  return std::make_unique<RowMajorLayer>(layer, n, std::move(grouping), tensors,
                                         stored);
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeQuarkLayer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const QuarkScheme& scheme, bool in_order) {
  switch (scheme.type) {
    case QuarkType::kFp8: {
      Fp8Scheme fp8;
      fp8.scale = ".weight_scale";
      fp8.grid = {scheme.channels ? 1 : 0, 0};
      fp8.input_codes = scheme.input_codes;
      return MakeFp8Layer(stored, layer, fp8);
    }
    case QuarkType::kInt8:
      return MakeQuarkInt8Layer(stored, layer, scheme);
    case QuarkType::kMxfp4:
      return MakeMxfp4Layer(stored, layer, ".weight", ".weight_scale");
    case QuarkType::kInt4:
    case QuarkType::kUint4:
      break;
  }
  AwqScheme awq;
  awq.choices = {{4}, {scheme.group_size}};
  awq.in_order = in_order;
  awq.is_signed = scheme.type == QuarkType::kInt4;
  return MakeAwqLayer(stored, layer, ".weight",
                      {".weight_scale", ".weight_zero_point"}, awq);
}

DType QuarkDType(QuarkType type) {
  switch (type) {
    case QuarkType::kFp8:
      return DType::kF8E4M3;
    case QuarkType::kInt8:
      return DType::kI8;
    case QuarkType::kMxfp4:
      return DType::kU8;
    case QuarkType::kInt4:
    case QuarkType::kUint4:
      break;
  }
  return DType::kI32;
}

// The scheme that the tensors fit. Where several do, they must mean the same
// weights; where these disagree about inputs, inputs are kept. Else why the
// first does not fit.
absl::StatusOr<QuarkScheme> FindQuarkScheme(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const QuarkPlan& plan) {
  const DType dtype = stored->Find(layer + ".weight")->dtype;
  std::optional<QuarkScheme> found;
  absl::Status first;
  bool any = false;
  for (const QuarkScheme& scheme : plan.schemes) {
    if (QuarkDType(scheme.type) != dtype) continue;
    any = true;
    const absl::Status fits =
        MakeQuarkLayer(stored, layer, scheme, plan.in_order).status();
    first.Update(fits);
    if (!fits.ok()) continue;
    if (!found.has_value()) found = scheme;
    if (scheme.type != found->type || scheme.group_size != found->group_size) {
      return absl::UnimplementedError(FormattedString(
          "layer %s fits several of %s's configs, of int4 and uint4 or of "
          "several group sizes; supported are layers whose tensors tell them "
          "apart",
          Quoted(layer), kConfigSettings));
    }
    if (scheme.input_codes != found->input_codes) {
      found->input_codes = InputCodes::kNone;
    }
  }
  if (found.has_value()) return *found;
  if (any) return first;
  return absl::InvalidArgumentError(FormattedString(
      "layer %s has weights of type %s, which no config of %s is of",
      Quoted(layer), DTypeName(dtype), kConfigSettings));
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindQuarkLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const QuarkPlan plan, ReadQuarkPlan(config));
  for (const char* suffix : {".input_rotation", ".input_prescale"}) {
    for (const std::string& layer : LayersWith(*stored, suffix)) {
      return absl::UnimplementedError(FormattedString(
          "tensor %s is there: its layer's inputs are turned while it runs, "
          "which is not supported",
          Quoted(layer + suffix)));
    }
  }
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".weight_scale")) {
    const WeightInfo* weight = stored->Find(layer + ".weight");
    if (weight == nullptr) continue;
    INLAY_ASSIGN_OR_RETURN(const QuarkScheme scheme,
                           FindQuarkScheme(stored, layer, plan));
    INLAY_ASSIGN_OR_RETURN(
        auto made, MakeQuarkLayer(stored, layer, scheme, plan.in_order));
    found.layers.push_back(std::move(made));
    for (const char* suffix :
         {".weight", ".weight_scale", ".weight_zero_point", ".input_scale",
          ".input_zero_point", ".output_scale", ".output_zero_point"}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
