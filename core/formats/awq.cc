// AWQ checkpoints (AutoAWQ, GPTQModel, AutoRound's and AMD Quark's awq
// folders): settings; awq_layer.h has the layouts. Symmetric ones ("zero_point"
// false) have their zero points all the same. Quark's say a "pack_method", and
// its symmetric ones are signed.
// Source: github.com/casper-hansen/AutoAWQ (models/_config.py),
// github.com/ModelCloud/GPTQModel (quantization/config.py) and PyPI's amd-quark
// (quark/torch/export/main_export/quant_config_parser.py).
#include <string>

#include "absl/strings/ascii.h"
#include "core/formats/awq_layer.h"
#include "core/formats/integer_settings.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kAwqBits[] = {4};

// Whether it is "gemv", else "gemm".
absl::StatusOr<bool> ReadAwqVersion(const Json& config) {
  std::string layout = "gemm";
  // GPTQModel has it by all three names.
  for (const char* key : {"format", "checkpoint_format", "version"}) {
    INLAY_ASSIGN_OR_RETURN(const std::string name,
                           JsonString(config, key, layout));
    layout = absl::AsciiStrToLower(name);
    if (layout != "gemm" && layout != "gemv") {
      return UnsupportedSetting(key, name, "gemm, gemv");
    }
  }
  return layout == "gemv";
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindAwqLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  AwqScheme scheme;
  INLAY_RETURN_IF_ERROR(AddDefaultChoices(config, 4, kAwqBits, scheme.choices));
  INLAY_RETURN_IF_ERROR(AddDynamicChoices(config, kAwqBits, scheme.choices));
  INLAY_ASSIGN_OR_RETURN(const bool zero_point,
                         JsonBool(config, "zero_point", true));
  INLAY_ASSIGN_OR_RETURN(const std::string pack,
                         JsonString(config, "pack_method", ""));
  if (!pack.empty() && pack != "reorder" && pack != "order") {
    return UnsupportedSetting("pack_method", pack, "order, reorder");
  }
  scheme.in_order = pack == "order";
  scheme.is_signed = !pack.empty() && !zero_point;
  INLAY_RETURN_IF_ERROR(CheckNames(config, "modules_to_not_convert"));
  for (const char* key : {"adapter", "rotation"}) {
    INLAY_RETURN_IF_ERROR(CheckAbsent(config, key));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string backend,
                         JsonString(config, "backend", ""));
  // The one that has a layout of its own.
  if (backend == "llm-awq") {
    return UnsupportedSetting("backend", backend, "autoawq and others");
  }
  INLAY_ASSIGN_OR_RETURN(const bool is_gemv, ReadAwqVersion(config));
  QuantizedLayers found;
  INLAY_RETURN_IF_ERROR(is_gemv
                            ? AddAwqGemvLayers(stored, scheme.choices, found)
                            : AddAwqLayers(stored, scheme, found));
  return found;
}

}  // namespace inlay
