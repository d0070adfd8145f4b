// GPTQ checkpoints (AutoGPTQ, GPTQModel, AutoRound's gptq folders): settings;
// gptq_layer.h has the layout.
// Source: github.com/AutoGPTQ/AutoGPTQ and github.com/ModelCloud/GPTQModel
// (quantization/config.py; utils/model.py, convert_gptq_v1_to_v2_format).
#include <string>

#include "core/formats/gptq_layer.h"
#include "core/formats/integer_settings.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of 5 to 7 bits there is a layout in planes alone ("gptq_p").
constexpr int64_t kGptqBits[] = {2, 3, 4, 8};

absl::StatusOr<GptqScheme> ReadGptqScheme(const Json& config) {
  GptqScheme scheme;
  INLAY_RETURN_IF_ERROR(
      AddDefaultChoices(config, 0, kGptqBits, scheme.choices));
  INLAY_RETURN_IF_ERROR(AddDynamicChoices(config, kGptqBits, scheme.choices));
  INLAY_ASSIGN_OR_RETURN(scheme.act_order, JsonBool(config, "desc_act", false));
  // By either name; the first one was there first.
  for (const char* key : {"checkpoint_format", "format"}) {
    INLAY_ASSIGN_OR_RETURN(const std::string format,
                           JsonString(config, key, "gptq"));
    if (format != "gptq" && format != "gptq_v2") {
      return UnsupportedSetting(key, format, "gptq, gptq_v2");
    }
  }
  INLAY_ASSIGN_OR_RETURN(std::string format,
                         JsonString(config, "format", "gptq"));
  INLAY_ASSIGN_OR_RETURN(format,
                         JsonString(config, "checkpoint_format", format));
  scheme.zeros_less_one = format == "gptq";
  INLAY_ASSIGN_OR_RETURN(const std::string word,
                         JsonString(config, "pack_dtype", "int32"));
  if (word != "int32") return UnsupportedSetting("pack_dtype", word, "int32");
  // "rotation": what down_proj reads is turned by a Hadamard matrix.
  for (const char* key : {"is_marlin_format", "adapter", "rotation"}) {
    INLAY_RETURN_IF_ERROR(CheckAbsent(config, key));
  }
  return scheme;
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindGptqLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const GptqScheme scheme, ReadGptqScheme(config));
  QuantizedLayers found;
  INLAY_RETURN_IF_ERROR(AddGptqLayers(stored, scheme, found));
  return found;
}

}  // namespace inlay
