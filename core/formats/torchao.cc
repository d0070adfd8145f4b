// TorchAO: quant_method "torchao". Source: PyPI's torchao 0.18
// (prototype/safetensors, quantization/quantize_/workflows, core/config.py);
// int4's values are those of PyTorch's FBGEMM (gen_ai, int4_row_quantize_zp).
// Each linear layer L has
//   L._weight_qdata, L._weight_scale, and for zero points L._weight_zero_point:
//   Float8Tensor   e4m3 [n, k], scales [n / rows, k / columns] of any block
//   Int8Tensor     i8 [n, k], likewise; value scale * (code - zero)
//   IntxUnpackedToInt8Tensor: the same, with codes of fewer bits, which become
//                  u4 where four are enough
//   Int4Tensor     bytes [n, k / 2], of two signed codes the even column's in
//                  the low bits; scales and zeros [k / group, n], floats; value
//                  scale * code + zero
// "quant_type" is the config of all layers, or FqnToConfig, which has several
// by modules' names. Which a layer is of is seen from its tensors, as in
// quark.cc.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/describe.h"
#include "core/formats/integer_settings.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/row_major_layer.h"
#include "core/formats/stored_tensor.h"
#include "core/formats/torchao_layer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kCodes = "._weight_qdata";
constexpr std::string_view kScales = "._weight_scale";
constexpr std::string_view kZeros = "._weight_zero_point";
constexpr int kMaxConfigDepth = 4;

constexpr char kTorchAoConfigs[] =
    "Float8DynamicActivationFloat8WeightConfig, "
    "Float8DynamicActivationInt4WeightConfig, Float8WeightOnlyConfig, "
    "FqnToConfig, GPTQConfig, Int4WeightOnlyConfig, "
    "Int8DynamicActivationInt8WeightConfig, "
    "Int8DynamicActivationIntxWeightConfig, "
    "Int8StaticActivationInt8WeightConfig, Int8WeightOnlyConfig, "
    "IntxWeightOnlyConfig";

// What the layers of a checkpoint may be.
struct TorchAoPlan {
  // Some are whole bytes, none are: whether i8 codes are of four bits at most.
  bool has_bytes = false;
  bool has_few_bits = false;
  bool has_int4 = false;
  // What inputs are rounded to where kernels may do so, of i8 and of f8; where
  // configs disagree, kNone.
  std::vector<InputCodes> int8_inputs;
  std::vector<InputCodes> fp8_inputs;
};

InputCodes Agreed(const std::vector<InputCodes>& codes) {
  if (codes.empty() ||
      !std::all_of(codes.begin(), codes.end(),
                   [&](InputCodes one) { return one == codes.front(); })) {
    return InputCodes::kNone;
  }
  return codes.front();
}

// The name under `key`: a string, or an enum or dtype, {"_type", "_data"}; for
// granularities, whose data are an object, that of the type.
absl::StatusOr<std::string> ReadName(const Json& data, std::string_view key,
                                     std::string_view fallback) {
  const Json* value = JsonFind(data, key);
  if (value == nullptr || !value->is_object()) {
    return JsonString(data, key, fallback);
  }
  const Json* inner = JsonFind(*value, "_data");
  return inner != nullptr && inner->is_string()
             ? JsonString(*value, "_data", fallback)
             : JsonString(*value, "_type", fallback);
}

absl::Status ExpectSetting(const Json& data, std::string_view key,
                           std::string_view fallback, std::string_view allowed,
                           std::string_view place) {
  INLAY_ASSIGN_OR_RETURN(const std::string got, ReadName(data, key, fallback));
  if (got == allowed) return absl::OkStatus();
  return UnsupportedSetting(key, got, allowed, place);
}

absl::Status AddInt4(const Json& data, std::string_view fallback,
                     std::string_view place, TorchAoPlan& plan) {
  constexpr char kKey[] = "int4_packing_format";
  INLAY_ASSIGN_OR_RETURN(const std::string packing,
                         ReadName(data, kKey, fallback));
  if (packing != "PLAIN" && packing != "plain") {
    return UnsupportedSetting(kKey, packing, "PLAIN", place);
  }
  plan.has_int4 = true;
  return absl::OkStatus();
}

absl::Status AddIntx(const Json& data, std::string_view place,
                     TorchAoPlan& plan) {
  INLAY_RETURN_IF_ERROR(ExpectSetting(data, "intx_packing_format",
                                      "UNPACKED_TO_INT8", "UNPACKED_TO_INT8",
                                      place));
  INLAY_ASSIGN_OR_RETURN(const std::string dtype,
                         ReadName(data, "weight_dtype", "int8"));
  if (dtype.size() != 4 || !dtype.starts_with("int") || dtype[3] < '1' ||
      dtype[3] > '8') {
    return UnsupportedSetting("weight_dtype", dtype, "int1 to int8", place);
  }
  (dtype[3] <= '4' ? plan.has_few_bits : plan.has_bytes) = true;
  plan.int8_inputs.push_back(InputCodes::kNone);
  return absl::OkStatus();
}

absl::Status AddInt8(const Json& data, bool rounds_inputs, TorchAoPlan& plan) {
  plan.has_bytes = true;
  InputCodes codes = InputCodes::kNone;
  if (rounds_inputs) {
    INLAY_ASSIGN_OR_RETURN(const std::string mapping,
                           ReadName(data, "act_mapping_type", "SYMMETRIC"));
    INLAY_ASSIGN_OR_RETURN(const std::string granularity,
                           ReadName(data, "granularity", "PerRow"));
    INLAY_ASSIGN_OR_RETURN(const bool decodes,
                           JsonBool(data, "weight_only_decode", false));
    if (mapping == "SYMMETRIC" && granularity == "PerRow" && !decodes) {
      codes = InputCodes::kInt8;
    }
  }
  plan.int8_inputs.push_back(codes);
  return absl::OkStatus();
}

absl::Status AddConfig(const Json& config, const std::string& place, int depth,
                       TorchAoPlan& plan);

// By modules' names; null leaves one alone.
absl::Status AddConfigs(const Json& data, const std::string& place, int depth,
                        TorchAoPlan& plan) {
  for (const char* key : {"fqn_to_config", "module_fqn_to_config"}) {
    const Json* configs = JsonFind(data, key);
    if (configs == nullptr) continue;
    if (!configs->is_object()) {
      return BadSetting(key, *configs, "an object", place);
    }
    for (const auto& [name, own] : configs->items()) {
      if (own.is_null()) continue;
      INLAY_RETURN_IF_ERROR(AddConfig(
          own, FormattedString("%s's %s: %s", place, key, Quoted(name)), depth,
          plan));
    }
  }
  return absl::OkStatus();
}

absl::Status AddConfig(const Json& config, const std::string& place, int depth,
                       TorchAoPlan& plan) {
  if (!config.is_object() || depth > kMaxConfigDepth) {
    return absl::InvalidArgumentError(
        FormattedString("%s is %s; it must be an object, at most %d deep",
                        place, config.type_name(), kMaxConfigDepth));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(config, "_type", ""));
  const Json* found = JsonFind(config, "_data");
  const Json data = found == nullptr ? Json::object() : *found;
  if (!data.is_object()) return BadSetting("_data", data, "an object", place);
  if (type == "FqnToConfig" || type == "ModuleFqnToConfig") {
    return AddConfigs(data, place, depth + 1, plan);
  }
  if (type == "GPTQConfig") {
    const Json* base = JsonFind(data, "base_config");
    return AddConfig(base == nullptr ? Json() : *base, place + "'s base_config",
                     depth + 1, plan);
  }
  if (type == "Int4WeightOnlyConfig")
    return AddInt4(data, "PLAIN", place, plan);
  if (type == "Float8DynamicActivationInt4WeightConfig") {
    return AddInt4(data, "preshuffled", place, plan);
  }
  if (type == "IntxWeightOnlyConfig" ||
      type == "Int8DynamicActivationIntxWeightConfig") {
    return AddIntx(data, place, plan);
  }
  if (type == "Int8WeightOnlyConfig" ||
      type == "Int8StaticActivationInt8WeightConfig") {
    return AddInt8(data, false, plan);
  }
  if (type == "Int8DynamicActivationInt8WeightConfig") {
    return AddInt8(data, true, plan);
  }
  if (type == "Float8WeightOnlyConfig") {
    plan.fp8_inputs.push_back(InputCodes::kNone);
    return absl::OkStatus();
  }
  if (type == "Float8DynamicActivationFloat8WeightConfig") {
    plan.fp8_inputs.push_back(InputCodes::kFp8);
    return absl::OkStatus();
  }
  return UnsupportedSetting("_type", type, kTorchAoConfigs, place);
}

absl::StatusOr<TorchAoPlan> ReadTorchAoPlan(const Json& config) {
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  const Json* types = JsonFind(config, "quant_type");
  const Json* type = types == nullptr ? nullptr : JsonFind(*types, "default");
  if (type == nullptr || types->size() != 1) {
    return BadSetting("quant_type", types == nullptr ? Json() : *types,
                      "an object with one key, \"default\"");
  }
  TorchAoPlan plan;
  INLAY_RETURN_IF_ERROR(AddConfig(
      *type, FormattedString("%s's quant_type", kConfigSettings), 0, plan));
  return plan;
}

std::string Companion(const std::string& layer, std::string_view suffix) {
  return layer + std::string(suffix);
}

// How many rows or columns share a scale of which there are `cells`.
absl::StatusOr<int64_t> CellSize(const WeightInfo& scales, size_t dimension,
                                 int64_t size) {
  const int64_t cells =
      dimension < scales.shape.size() ? scales.shape[dimension] : 1;
  if (size % cells == 0) return size / cells;
  return absl::InvalidArgumentError(FormattedString(
      "tensor %s has %d scales along %d rows or columns; their number must be "
      "a multiple of that",
      Quoted(scales.name), cells, size));
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeByteLayer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const TorchAoPlan& plan) {
  RowMajorTensors tensors;
  INLAY_ASSIGN_OR_RETURN(tensors.codes,
                         StoredMatrix(*stored, Companion(layer, kCodes),
                                      {DType::kI8, DType::kF8E4M3}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = tensors.codes->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_ASSIGN_OR_RETURN(
      tensors.scales,
      StoredTensor(*stored, Companion(layer, kScales), kScaleDTypes));
  INLAY_ASSIGN_OR_RETURN(tensors.grid.rows, CellSize(*tensors.scales, 0, n));
  INLAY_ASSIGN_OR_RETURN(tensors.grid.columns, CellSize(*tensors.scales, 1, k));
  INLAY_RETURN_IF_ERROR(CheckGrid(*tensors.scales, tensors.grid, n, k));
  if (tensors.codes->dtype == DType::kF8E4M3) {
    tensors.kind = CodeKind::kF8;
    tensors.input_codes = Agreed(plan.fp8_inputs);
  } else {
    const bool fits_u4 = plan.has_few_bits && !plan.has_bytes;
    tensors.kind = fits_u4 ? CodeKind::kU4 : CodeKind::kI8;
    tensors.input_codes = Agreed(plan.int8_inputs);
    const std::string zeros = Companion(layer, kZeros);
    if (stored->Find(zeros) != nullptr) {
      INLAY_ASSIGN_OR_RETURN(tensors.zeros,
                             StoredTensor(*stored, zeros, {DType::kI8}));
      INLAY_RETURN_IF_ERROR(CheckGrid(*tensors.zeros, tensors.grid, n, k));
    }
  }
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         ContiguousGroups(layer, k, tensors.grid.columns));
  return std::make_unique<RowMajorLayer>(layer, n, std::move(grouping), tensors,
                                         stored);
}

// Zeros of floats are Int4Tensor's alone.
bool IsInt4(const WeightSource& stored, const std::string& layer) {
  const WeightInfo* zeros = stored.Find(Companion(layer, kZeros));
  return zeros != nullptr && zeros->dtype != DType::kI8;
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeTorchAoLayer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const TorchAoPlan& plan) {
  const std::string scaled = layer + "._weight_act_pre_scale";
  if (stored->Find(scaled) != nullptr) {
    return absl::UnimplementedError(FormattedString(
        "tensor %s is there: its layer's inputs are multiplied while it runs, "
        "which is not supported",
        Quoted(scaled)));
  }
  const bool is_int4 = IsInt4(*stored, layer);
  const WeightInfo& codes = *stored->Find(Companion(layer, kCodes));
  const bool is_fp8 = codes.dtype == DType::kF8E4M3;
  if (is_int4  ? !plan.has_int4
      : is_fp8 ? plan.fp8_inputs.empty()
               : !plan.has_bytes && !plan.has_few_bits) {
    return absl::InvalidArgumentError(FormattedString(
        "layer %s has codes of type %s, which no config of %s is of",
        Quoted(layer), DTypeName(codes.dtype), kConfigSettings));
  }
  if (!is_int4) return MakeByteLayer(stored, layer, plan);
  return MakeTorchAoInt4Layer(
      stored, layer,
      {Companion(layer, kCodes), Companion(layer, kScales),
       Companion(layer, kZeros)});
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindTorchAoLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const TorchAoPlan plan, ReadTorchAoPlan(config));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, "_qdata")) {
    constexpr std::string_view kWeight = "._weight";
    if (!layer.ends_with(kWeight)) {
      return absl::UnimplementedError(FormattedString(
          "tensor %s is quantised; supported are layers' weights",
          Quoted(layer + "_qdata")));
    }
    const std::string name = layer.substr(0, layer.size() - kWeight.size());
    INLAY_ASSIGN_OR_RETURN(auto made, MakeTorchAoLayer(stored, name, plan));
    found.layers.push_back(std::move(made));
    for (const std::string_view suffix :
         {kCodes, kScales, kZeros, std::string_view("._weight_act_quant_scale"),
          std::string_view("._weight_act_quant_zero_point")}) {
      found.consumed.push_back(Companion(name, suffix));
    }
  }
  return found;
}

}  // namespace inlay
