// AutoRound checkpoints (quant_method "auto-round", of its first versions
// "intel/auto-round"): layers by "packing_format" (first versions: "backend"):
//   auto_round:auto_gptq   gptq_layer.h, zero points less 1
//   auto_round:gptqmodel, auto_round
//                          gptq_layer.h, zero points as they are
//   auto_round:auto_awq    awq_layer.h, gemm
// "extra_config": settings of some layers, by name or pattern; 16 bits and more
// leave a layer alone.
// Source: github.com/intel/auto-round (export/export_to_autoround/export.py,
// inference/convert_model.py).
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
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

struct AutoRoundPacking {
  bool awq = false;
  bool zeros_less_one = false;  // of the others
};

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
  if (name == "auto") return AutoRoundPacking{false, true};
  std::vector<std::string> parts = absl::StrSplit(name, ':');
  const bool named = parts.front() == "auto_round";
  parts.erase(parts.begin());
  if (!parts.empty() && IsAutoRoundKernel(parts.back())) parts.pop_back();
  const std::string layout = parts.empty() ? "" : parts.front();
  if (named && parts.size() <= 1) {
    if (layout == "auto_gptq" || layout == "gptq")
      return AutoRoundPacking{false, true};
    if (layout == "auto_awq" || layout == "awq")
      return AutoRoundPacking{true, false};
    if (layout == "gptqmodel" || parts.empty()) return AutoRoundPacking();
  }
  return UnsupportedSetting(key, name,
                            "auto_round, auto_round:auto_awq, "
                            "auto_round:auto_gptq, auto_round:gptqmodel");
}

// Of all layers and of those in "extra_config": integers, with inputs as they
// are.
absl::Status CheckAutoRoundScheme(const Json& settings,
                                  std::string_view place) {
  const auto type = JsonString(settings, "data_type", "int");
  if (!type.ok()) return InFile(place, type.status());
  if (*type != "int" && *type != "int_sym" && *type != "int_asym") {
    return UnsupportedSetting("data_type", *type, "int", place);
  }
  const auto inputs = JsonInt(settings, "act_bits", 16, 0, 64);
  if (!inputs.ok()) return InFile(place, inputs.status());
  if (*inputs < 16) {
    return UnsupportedSetting("act_bits", FormattedString("%d", *inputs), "16",
                              place);
  }
  for (const char* key :
       {"super_bits", "super_group_size", "rotation_config"}) {
    INLAY_RETURN_IF_ERROR(CheckAbsent(settings, key, place));
  }
  return absl::OkStatus();
}

absl::Status AddExtraChoices(const Json& config,
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
    INLAY_RETURN_IF_ERROR(CheckAutoRoundScheme(settings, place));
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

}  // namespace

absl::StatusOr<QuantizedLayers> FindAutoRoundLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const AutoRoundPacking packing,
                         ReadAutoRoundPacking(config));
  INLAY_RETURN_IF_ERROR(CheckAutoRoundScheme(config, kConfigSettings));
  INLAY_RETURN_IF_ERROR(CheckAbsent(config, "spinquant_config"));
  INLAY_RETURN_IF_ERROR(CheckBlockNames(config));
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  const absl::Span<const int64_t> supported =
      packing.awq ? absl::MakeConstSpan(kAutoRoundAwqBits)
                  : absl::MakeConstSpan(kAutoRoundBits);
  LayerChoices choices;
  INLAY_RETURN_IF_ERROR(AddDefaultChoices(config, 4, supported, choices));
  INLAY_RETURN_IF_ERROR(AddExtraChoices(config, supported, choices));
  QuantizedLayers found;
  INLAY_RETURN_IF_ERROR(
      packing.awq
          ? AddAwqLayers(stored, {choices}, found)
          : AddGptqLayers(stored, {choices, false, packing.zeros_less_one},
                          found));
  return found;
}

}  // namespace inlay
