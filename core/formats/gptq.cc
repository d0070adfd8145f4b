// GPTQ checkpoints (AutoGPTQ, GPTQModel). Of a layer with k inputs and n
// outputs:
//   qweight i32 [k * bits / 32, n]        inputs in words, lowest field first
//   qzeros  i32 [groups, n * bits / 32]   outputs likewise
//   scales      [groups, n]
//   g_idx   i32 [k]                       each input's group; absent: in order
//
//   weight[o][i] = scales[g][o] * (code[i][o] - zero[g][o]),  g = g_idx[i]
//
// Files of checkpoint_format "gptq" (v1) store zeros less 1: their writer takes
// 0x11111111 from every word, so adding that to the word undoes it.
// Source: the file layout of github.com/AutoGPTQ/AutoGPTQ (QuantLinear) and
// github.com/ModelCloud/GPTQModel (formats v1 and v2).
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/formats/input_major_layer.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/stored_tensor.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct GptqConfig {
  int bits = 4;
  int64_t group_size = 128;
  bool act_order = false;
  bool stored_less_one = true;  // zeros
};

// Overrides by module name: "-:PATTERN" leaves modules alone, which shows in
// the tensors; anything else gives them other settings.
absl::Status CheckGptqDynamic(const Json& config) {
  const Json* dynamic = JsonFind(config, "dynamic");
  if (dynamic == nullptr) return absl::OkStatus();
  if (!dynamic->is_object()) {
    return BadSetting("dynamic", *dynamic, "an object");
  }
  for (const auto& [pattern, settings] : dynamic->items()) {
    if (pattern.starts_with("-:")) continue;
    return UnsupportedSetting("dynamic", pattern,
                              "patterns that begin with \"-:\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<GptqConfig> ReadGptqConfig(const Json& config) {
  GptqConfig out;
  INLAY_ASSIGN_OR_RETURN(const int64_t bits, JsonInt(config, "bits", 0, 0, 64));
  if (bits != 4 && bits != 8) {
    return UnsupportedSetting("bits", FormattedString("%d", bits), "4, 8");
  }
  out.bits = static_cast<int>(bits);
  INLAY_ASSIGN_OR_RETURN(out.group_size, GroupSizeSetting(config, 128));
  INLAY_ASSIGN_OR_RETURN(out.act_order, JsonBool(config, "desc_act", false));
  // Zero points are stored either way.
  INLAY_RETURN_IF_ERROR(JsonBool(config, "sym", true).status());
  INLAY_ASSIGN_OR_RETURN(const std::string format,
                         JsonString(config, "checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    return UnsupportedSetting("checkpoint_format", format, "gptq, gptq_v2");
  }
  out.stored_less_one = format == "gptq";
  INLAY_ASSIGN_OR_RETURN(const std::string word,
                         JsonString(config, "pack_dtype", "int32"));
  if (word != "int32") return UnsupportedSetting("pack_dtype", word, "int32");
  INLAY_ASSIGN_OR_RETURN(const bool marlin,
                         JsonBool(config, "is_marlin_format", false));
  if (marlin) return UnsupportedSetting("is_marlin_format", "true", "false");
  INLAY_RETURN_IF_ERROR(CheckGptqDynamic(config));
  return out;
}

class GptqLayer final : public InputMajorLayer {
 public:
  GptqLayer(const std::string& layer, Grouping grouping,
            const InputMajorTensors& tensors, const ZeroPacking& packing,
            std::shared_ptr<const WeightSource> stored)
      : InputMajorLayer(layer, std::move(grouping), tensors, packing,
                        std::move(stored)) {}

 private:
  // Words of 16 rows of `codes` at a time, a row of codes per output: both
  // sides stay in cache, and each output gets a run of 64 or more bytes.
  absl::Status LoadCodes(Band& band) const override {
    constexpr int64_t kTile = 16;
    const int64_t fields = 32 / bits();
    const int64_t word_rows = codes().shape[0];
    std::vector<std::byte> words(static_cast<size_t>(kTile * band.rows * 4));
    for (int64_t w0 = 0; w0 < word_rows; w0 += kTile) {
      const int64_t count = std::min(kTile, word_rows - w0);
      INLAY_RETURN_IF_ERROR(ReadStrip(stored(), codes(), w0, count,
                                      band.first * 4, band.rows * 4,
                                      words.data()));
      for (int64_t row = 0; row < band.rows; ++row) {
        uint8_t* to = band.codes.data() + row * grouping().k + w0 * fields;
        for (int64_t w = 0; w < count; ++w, to += fields) {
          const uint32_t word = LoadWord(words.data(), w * band.rows + row);
          if (bits() == 4) {
            const uint64_t spread = SpreadNibbles(word);
            std::memcpy(to, &spread, sizeof(spread));
          } else {
            const uint32_t centred = word ^ 0x80808080u;
            std::memcpy(to, &centred, sizeof(centred));
          }
        }
      }
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<Grouping> FindGptqGrouping(const WeightSource& stored,
                                          const GptqConfig& config,
                                          const std::string& layer, int64_t k,
                                          int64_t groups) {
  const std::string name = layer + ".g_idx";
  if (stored.Find(name) == nullptr && !config.act_order) {
    return ContiguousGroups(layer, k, config.group_size);
  }
  INLAY_ASSIGN_OR_RETURN(const WeightInfo* info,
                         StoredTensor(stored, name, {DType::kI32}));
  INLAY_RETURN_IF_ERROR(CheckShape(*info, {k}));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int32_t> index,
                         ReadInts(stored, *info));
  return IndexedGroups(layer, index, groups);
}

absl::StatusOr<std::unique_ptr<const QuantizedLayer>> FindGptqLayer(
    const std::shared_ptr<const WeightSource>& stored, const GptqConfig& config,
    const std::string& layer) {
  INLAY_ASSIGN_OR_RETURN(
      const WeightInfo* codes,
      StoredMatrix(*stored, layer + ".qweight", {DType::kI32}));
  const int fields = 32 / config.bits;
  const int64_t n = codes->shape[1];
  const int64_t k = FieldsIn(codes->shape[0], fields);
  INLAY_RETURN_IF_ERROR(CheckLayerSize(layer, n, k));
  const int64_t groups = (k - 1) / std::min(config.group_size, k) + 1;
  INLAY_ASSIGN_OR_RETURN(
      const InputMajorTensors tensors,
      FindInputMajorTensors(*stored, layer, codes, n, groups, config.bits));
  INLAY_ASSIGN_OR_RETURN(Grouping grouping,
                         FindGptqGrouping(*stored, config, layer, k, groups));
  ZeroPacking packing;
  packing.bits = config.bits;
  if (config.stored_less_one) {
    packing.addend = config.bits == 4 ? 0x11111111u : 0x01010101u;
  }
  return std::make_unique<GptqLayer>(layer, std::move(grouping), tensors,
                                     packing, stored);
}

}  // namespace

absl::StatusOr<QuantizedLayers> FindGptqLayers(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view) {
  INLAY_ASSIGN_OR_RETURN(const GptqConfig settings, ReadGptqConfig(config));
  QuantizedLayers found;
  for (const std::string& layer : LayersWith(*stored, ".qweight")) {
    INLAY_ASSIGN_OR_RETURN(auto made, FindGptqLayer(stored, settings, layer));
    found.layers.push_back(std::move(made));
    for (const char* suffix : {".qweight", ".qzeros", ".scales", ".g_idx"}) {
      found.consumed.push_back(layer + suffix);
    }
  }
  return found;
}

}  // namespace inlay
