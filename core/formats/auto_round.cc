// AutoRound checkpoints (quant_method "auto-round", of its first versions
// "intel/auto-round"): layers by "packing_format" (first versions: "backend"):
//   auto_round:auto_gptq   gptq_layer.h, zero points less 1
//   auto_round:gptqmodel, auto_round
//                          gptq_layer.h, zero points as they are
//   auto_round:auto_awq    awq_layer.h, gemm
//   auto_round:llm_compressor, auto_round:fp8_static, auto_round:fp8
//                          auto_round_floats.cc
// "extra_config": settings of some layers, by name or pattern; 16 bits and more
// leave a layer alone.
// Source: github.com/intel/auto-round (export/export_to_autoround/export.py,
// inference/convert_model.py).
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/formats/auto_round_floats.h"
#include "core/formats/awq_layer.h"
#include "core/formats/describe.h"
#include "core/formats/gptq_layer.h"
#include "core/formats/integer_settings.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kAutoRoundBits[] = {2, 3, 4, 5, 6, 7, 8};
constexpr int64_t kAutoRoundAwqBits[] = {4};

enum class AutoRoundPacking : uint8_t { kGptq1, kGptq2, kAwq, kMx, kFp8 };

bool IsOfFloats(AutoRoundPacking packing) {
  return packing == AutoRoundPacking::kMx || packing == AutoRoundPacking::kFp8;
}

// What a packing goes on with, after a colon, is the kernel that it was made
// for.
bool IsAutoRoundKernel(std::string_view name) {
  return name == "exllamav2" || name == "triton" || name == "tritonv2" ||
         name == "marlin" || name == "torch";
}

absl::StatusOr<AutoRoundPacking> ReadAutoRoundPacking(const Json& config) {
  std::string key = "packing_format";
  INLAY_ASSIGN_OR_RETURN(std::string name, JsonString(config, key, ""));
  if (name.empty()) {
    key = "backend";
    INLAY_ASSIGN_OR_RETURN(name, JsonString(config, key, "auto"));
  }
  // Of weights in FP8 with inputs as they are there is none.
  if (name == "auto") {
    return JsonFind(config, "fmt") != nullptr ? AutoRoundPacking::kFp8
                                              : AutoRoundPacking::kGptq1;
  }
  std::vector<std::string> parts = absl::StrSplit(name, ':');
  const bool named = parts.front() == "auto_round";
  parts.erase(parts.begin());
  if (!parts.empty() && IsAutoRoundKernel(parts.back())) parts.pop_back();
  const std::string layout = parts.empty() ? "gptqmodel" : parts.front();
  constexpr std::pair<std::string_view, AutoRoundPacking> kLayouts[] = {
      {"auto_gptq", AutoRoundPacking::kGptq1},
      {"gptq", AutoRoundPacking::kGptq1},
      {"gptqmodel", AutoRoundPacking::kGptq2},
      {"auto_awq", AutoRoundPacking::kAwq},
      {"awq", AutoRoundPacking::kAwq},
      {"llm_compressor", AutoRoundPacking::kMx},
      {"fp8_static", AutoRoundPacking::kFp8},
      {"fp8", AutoRoundPacking::kFp8},
  };
  for (const auto& [known, packing] : kLayouts) {
    if (named && parts.size() <= 1 && layout == known) return packing;
  }
  return UnsupportedSetting(key, name,
                            "auto_round, auto_round:auto_awq, "
                            "auto_round:auto_gptq, auto_round:fp8, "
                            "auto_round:fp8_static, auto_round:gptqmodel, "
                            "auto_round:llm_compressor");
}

// Of integers inputs stay as they are.
absl::Status CheckAutoRoundIntegers(const Json& settings,
                                    const std::string& type,
                                    std::string_view place) {
  if (type != "int" && type != "int_sym" && type != "int_asym") {
    return UnsupportedSetting("data_type", type, "int", place);
  }
  const auto inputs = JsonInt(settings, "act_bits", 16, 0, 64);
  if (!inputs.ok()) return InFile(place, inputs.status());
  if (*inputs >= 16) return absl::OkStatus();
  return UnsupportedSetting("act_bits", FormattedString("%d", *inputs), "16",
                            place);
}

// Of all layers and of those in "extra_config".
absl::Status CheckAutoRoundScheme(const Json& settings,
                                  AutoRoundPacking packing,
                                  std::string_view place) {
  for (const char* key : {"super_bits", "super_group_size", "rotation_config",
                          "spinquant_config"}) {
    INLAY_RETURN_IF_ERROR(CheckAbsent(settings, key, place));
  }
  const bool is_mx = packing == AutoRoundPacking::kMx;
  const auto type = JsonString(settings, "data_type",
                               is_mx                 ? "mx_fp"
                               : IsOfFloats(packing) ? "fp8"
                                                     : "int");
  if (!type.ok()) return InFile(place, type.status());
  if (!IsOfFloats(packing)) {
    return CheckAutoRoundIntegers(settings, *type, place);
  }
  const bool good =
      is_mx
          ? type->starts_with("mx_fp") || type->starts_with("nv_fp")
          : type->starts_with("fp") && type->find("e5m2") == std::string::npos;
  if (good) return absl::OkStatus();
  return UnsupportedSetting(
      "data_type", *type,
      is_mx ? "mx_fp and nv_fp of this packing" : "fp8 of this packing", place);
}

// `choices`: of integers.
absl::Status ReadExtraConfig(const Json& config, AutoRoundPacking packing,
                             absl::Span<const int64_t> supported,
                             LayerChoices& choices) {
  const Json* extra = JsonFind(config, "extra_config");
  if (extra == nullptr) return absl::OkStatus();
  if (!extra->is_object()) {
    return BadSetting("extra_config", *extra, "an object");
  }
  for (const auto& [layer, settings] : extra->items()) {
    const std::string place = FormattedString("%s's extra_config: %s",
                                              kConfigSettings, Quoted(layer));
    if (!settings.is_object()) {
      return BadSetting(FormattedString("extra_config: %s", Quoted(layer)),
                        settings, "an object");
    }
    const auto bits = JsonInt(settings, "bits", 0, 0, 64);
    if (!bits.ok()) return InFile(place, bits.status());
    if (*bits >= 16) continue;
    INLAY_RETURN_IF_ERROR(CheckAutoRoundScheme(settings, packing, place));
    if (IsOfFloats(packing)) continue;
    INLAY_RETURN_IF_ERROR(AddChoices(settings, supported, place, choices));
  }
  return absl::OkStatus();
}

// A list of names, of lists of them, or names with commas between them.
absl::Status CheckBlockNames(const Json& config) {
  const Json* names = JsonFind(config, "block_name_to_quantize");
  if (names == nullptr || names->is_string()) return absl::OkStatus();
  const auto is_text = [](const Json& name) { return name.is_string(); };
  const bool good =
      names->is_array() &&
      std::all_of(names->begin(), names->end(), [&](const Json& part) {
        return is_text(part) ||
               (part.is_array() &&
                std::all_of(part.begin(), part.end(), is_text));
      });
  return good ? absl::OkStatus()
              : BadSetting("block_name_to_quantize", *names, "names of blocks");
}

absl::Status AddAutoRoundFloats(
    const Json& config, AutoRoundPacking packing,
    const std::shared_ptr<const WeightSource>& stored, QuantizedLayers& found) {
  if (packing == AutoRoundPacking::kMx) {
    return AddAutoRoundMxLayers(stored, found);
  }
  INLAY_ASSIGN_OR_RETURN(const std::string format,
                         JsonString(config, "fmt", "e4m3"));
  if (format != "e4m3") return UnsupportedSetting("fmt", format, "e4m3");
  std::optional<ScaleGrid> block;
  const Json* size = JsonFind(config, "group_size");
  if (size != nullptr && size->is_array()) {
    INLAY_ASSIGN_OR_RETURN(block, BlockSetting("group_size", *size));
  } else {
    // 0: of whole tensors, -1: of channels.
    INLAY_ASSIGN_OR_RETURN(const int64_t group,
                           JsonInt(config, "group_size", 0, -1, 1 << 20));
    if (group > 0) {
      return UnsupportedSetting("group_size", FormattedString("%d", group),
                                "0, -1, [rows, columns] for fp8");
    }
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t inputs,
                         JsonInt(config, "act_bits", 16, 0, 64));
  return AddAutoRoundFp8Layers(
      stored, block, inputs == 8 ? InputCodes::kFp8 : InputCodes::kNone, found);
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindAutoRoundLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const AutoRoundPacking packing,
                         ReadAutoRoundPacking(config));
  INLAY_RETURN_IF_ERROR(CheckAutoRoundScheme(config, packing, kConfigSettings));
  INLAY_RETURN_IF_ERROR(CheckBlockNames(config));
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  const bool is_awq = packing == AutoRoundPacking::kAwq;
  const absl::Span<const int64_t> supported =
      is_awq ? absl::MakeConstSpan(kAutoRoundAwqBits)
             : absl::MakeConstSpan(kAutoRoundBits);
  QuantizedLayers found;
  LayerChoices choices;
  if (IsOfFloats(packing)) {
    INLAY_RETURN_IF_ERROR(ReadExtraConfig(config, packing, supported, choices));
    INLAY_RETURN_IF_ERROR(AddAutoRoundFloats(config, packing, stored, found));
    return found;
  }
  INLAY_RETURN_IF_ERROR(AddDefaultChoices(config, 4, supported, choices));
  INLAY_RETURN_IF_ERROR(ReadExtraConfig(config, packing, supported, choices));
  INLAY_RETURN_IF_ERROR(
      is_awq
          ? AddAwqLayers(stored, {choices}, found)
          : AddGptqLayers(stored,
                          {choices, false, packing == AutoRoundPacking::kGptq1},
                          found));
  return found;
}

}  // namespace inlay
