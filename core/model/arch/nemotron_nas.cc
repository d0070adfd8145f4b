// Llama-Nemotron Super and Ultra (NVIDIA, arXiv:2505.00949) and DeciLM 7B:
// Llama whose layers were chosen one by one: attention and MLP each as they
// are, with other numbers of KV heads and other widths, or not at all
// (core/formats/nas_blocks.h). Source of names and sizes: llama.cpp's converter
// (conversion/deci.py).
#include <algorithm>
#include <utility>
#include <vector>

#include "core/formats/nas_blocks.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// DeciLM 7B's: num_key_value_heads_per_layer, or the same for all.
absl::StatusOr<std::vector<NasLayer>> ReadKvHeadsOfLayers(
    const Json& json, const DecoderConfig& config) {
  constexpr char kHeads[] = "num_key_value_heads_per_layer";
  const auto count = static_cast<size_t>(config.num_layers);
  std::vector<NasLayer> layers(count,
                               {config.num_kv_heads, config.intermediate_size});
  const Json* heads = JsonFind(json, kHeads);
  if (heads == nullptr) return layers;
  if (!heads->is_array() || heads->size() != count) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s is %s; it must have %d entries",
                        kHeads, ShownJson(*heads), config.num_layers));
  }
  for (size_t i = 0; i < count; ++i) {
    INLAY_ASSIGN_OR_RETURN(
        const int64_t own,
        JsonInt(Json{{kHeads, (*heads)[i]}}, kHeads, 1, 1, config.num_heads));
    if (config.num_heads % own != 0) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: %s has %d; it must divide num_attention_heads, %d",
          kHeads, own, config.num_heads));
    }
    layers[i].num_kv_heads = own;
  }
  return layers;
}

absl::StatusOr<DecoderSpec> NasSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.max_positions = 2048;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<NasLayer> layers,
      JsonFind(json, kNasBlocks) != nullptr
          ? ReadNasBlocks(json, config.num_layers, config.num_heads,
                          config.hidden_size)
          : ReadKvHeadsOfLayers(json, config));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const NasLayer& own = layers[static_cast<size_t>(i)];
    const std::string prefix = LayerPrefix(i);
    DecoderConfig sizes = config;
    sizes.num_kv_heads =
        static_cast<int>(std::max<int64_t>(own.num_kv_heads, 1));
    sizes.intermediate_size = std::max<int64_t>(own.width, 1);
    LayerSpec layer =
        LlamaStyleLayer(sizes, prefix, NormKind::kRms,
                        LlamaStyleAttention(sizes, prefix, bias, bias),
                        LlamaStyleMlp(sizes, prefix, mlp_bias));
    if (own.width == 0) layer.blocks.pop_back();
    if (own.num_kv_heads == 0) layer.blocks.erase(layer.blocks.begin());
    if (!layer.blocks.empty()) spec.layers.push_back(std::move(layer));
  }
  if (!spec.layers.empty()) return spec;
  return absl::InvalidArgumentError(
      "config.json: block_configs has no layer that does anything");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeNemotronNas(const Json& json,
                                                       ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, NasSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
