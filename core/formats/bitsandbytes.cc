// bitsandbytes checkpoints (transformers' load_in_4bit and load_in_8bit).
// Four bits, of a layer with k inputs and n outputs:
//   weight                 bytes [n * k / 2, 1]: the codes of the weight laid
//                          out flat, two a byte, upper nibble first
//   weight.absmax          scales of blocks of the flat weight: f32, or u8
//                          where they are coded too ("double quantisation")
//   weight.quant_map       f32 [16], the levels
//   weight.nested_absmax   f32, and weight.nested_quant_map f32 [256]: scale =
//                          nested_quant_map[absmax] * nested_absmax + offset
//   weight.quant_state.bitsandbytes__nf4 (or __fp4)   u8, a JSON object:
//                          shape, blocksize, nested_blocksize, nested_offset
//   weight = quant_map[code] * scale
// Eight bits (LLM.int8):
//   weight i8 [n, k]; SCB f32 [n], each row's largest value; weight_format u8,
//                          0: rows as they are
//   weight[o][i] = code * SCB[o] / 127
// Inputs stay as they are, so that outliers need no path of their own.
// Sources: Dettmers et al., "QLoRA" and "LLM.int8()"; bitsandbytes
// (functional.py QuantState, nn/modules.py Linear8bitLt).
#include <string>
#include <utility>

#include "core/formats/bitsandbytes_layer.h"
#include "core/formats/describe.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/row_major_layer.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr std::string_view kState = ".weight.quant_state.";

absl::Status CheckBnbConfig(const Json& config) {
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(config, "bnb_4bit_quant_type", "fp4"));
  if (type != "nf4" && type != "fp4") {
    return UnsupportedSetting("bnb_4bit_quant_type", type, "nf4, fp4");
  }
  INLAY_RETURN_IF_ERROR(JsonBool(config, "load_in_4bit", false).status());
  INLAY_RETURN_IF_ERROR(JsonBool(config, "load_in_8bit", false).status());
  return CheckNames(config, "llm_int8_skip_modules");
}

absl::Status AddFourBits(const std::shared_ptr<const WeightSource>& stored,
                         const WeightInfo& state_tensor,
                         QuantizedLayers& found) {
  const std::string& name = state_tensor.name;
  const size_t at = name.find(kState);
  const std::string layer = name.substr(0, at);
  const std::string_view suffix =
      std::string_view(name).substr(at + kState.size());
  std::string_view type;
  if (suffix == "bitsandbytes__nf4") type = "nf4";
  if (suffix == "bitsandbytes__fp4") type = "fp4";
  if (type.empty()) {
    return absl::UnimplementedError(
        FormattedString("tensor %s: supported are states bitsandbytes__nf4 and "
                        "bitsandbytes__fp4",
                        Quoted(name)));
  }
  INLAY_ASSIGN_OR_RETURN(BnbState state, ReadBnbState(*stored, layer, type));
  found.layers.push_back(
      std::make_unique<BnbLayer>(layer, std::move(state), stored));
  for (const char* part :
       {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    found.consumed.push_back(layer + ".weight" + part);
  }
  found.consumed.push_back(name);
  return absl::OkStatus();
}

absl::Status CheckWeightFormat(const WeightSource& stored,
                               const std::string& layer) {
  const std::string name = layer + ".weight_format";
  if (stored.Find(name) == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, name, {DType::kU8}));
  std::byte format{0};
  if (info->bytes == 1) {
    INLAY_RETURN_IF_ERROR(stored.Read(*info, 0, absl::MakeSpan(&format, 1)));
    if (format == std::byte{0}) return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "tensor %s is %d (%d bytes); supported is one 0, rows as they are",
      Quoted(name), static_cast<int>(format), info->bytes));
}

absl::Status AddEightBits(const std::shared_ptr<const WeightSource>& stored,
                          const std::string& layer, QuantizedLayers& found) {
  RowMajorTensors tensors;
  tensors.kind = CodeKind::kI8;
  tensors.scale_divisor = 127.0f;
  INLAY_ASSIGN_OR_RETURN(
      tensors.codes, StoredMatrix(*stored, layer + ".weight", {DType::kI8}));
  const int64_t n = tensors.codes->shape[0];
  const int64_t k = tensors.codes->shape[1];
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  INLAY_RETURN_IF_ERROR(CheckWeightFormat(*stored, layer));
  INLAY_ASSIGN_OR_RETURN(tensors.scales,
                         StoredTensor(*stored, layer + ".SCB", kScaleDTypes));
  tensors.grid = {1, k};
  INLAY_RETURN_IF_ERROR(CheckGrid(*tensors.scales, tensors.grid, n, k));
  INLAY_RETURN_IF_ERROR(CheckFiniteScales(*stored, *tensors.scales));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping, ContiguousGroups(layer, k, k));
  found.layers.push_back(std::make_unique<RowMajorLayer>(
      layer, n, std::move(grouping), tensors, stored));
  found.consumed.insert(
      found.consumed.end(),
      {layer + ".weight", layer + ".SCB", layer + ".weight_format"});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindBitsAndBytesLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_RETURN_IF_ERROR(CheckBnbConfig(config));
  QuantizedLayers found;
  for (const WeightInfo& info : stored->weights()) {
    if (info.name.find(kState) == std::string::npos) continue;
    INLAY_RETURN_IF_ERROR(AddFourBits(stored, info, found));
  }
  for (const std::string& layer : LayersWith(*stored, ".weight.absmax")) {
    const std::string state = layer + std::string(kState) + "bitsandbytes__";
    if (stored->Find(state + "nf4") != nullptr) continue;
    if (stored->Find(state + "fp4") != nullptr) continue;
    return absl::NotFoundError(FormattedString(
        "tensor %s is missing; its layer is quantised", Quoted(state + "nf4")));
  }
  for (const std::string& layer : LayersWith(*stored, ".weight")) {
    const DType dtype = stored->Find(layer + ".weight")->dtype;
    const bool four_bits = stored->Find(layer + ".weight.absmax") != nullptr;
    if (dtype != DType::kI8 || four_bits) continue;
    INLAY_RETURN_IF_ERROR(AddEightBits(stored, layer, found));
  }
  return found;
}

}  // namespace inlay
