// Llama-Nemotron Super and Ultra (NVIDIA, arXiv:2505.00949) and DeciLM 7B:
// Llama whose layers were chosen one by one: attention and MLP each as they
// are, with other numbers of KV heads and other widths, or not at all. Source
// of names and sizes: llama.cpp's converter (conversion/deci.py) and NVIDIA's
// published block_config.py.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/formats/gguf_deci.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct NasLayer {
  int num_kv_heads = 0;  // 0: no attention
  int64_t width = 0;     // 0: no MLP
};

absl::Status ExpectNull(const Json& part, const std::string& place,
                        std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* value = JsonFind(part, key);
    if (value == nullptr || *value == Json(false)) continue;
    return absl::UnimplementedError(
        FormattedString("config.json: %s's %s is %s; supported here is null",
                        place, key, DumpJson(*value)));
  }
  return absl::OkStatus();
}

// Of how many heads of queries each shares keys, where there is attention.
absl::StatusOr<int> ReadKvHeads(const Json& attention, const std::string& place,
                                int num_heads) {
  INLAY_RETURN_IF_ERROR(ExpectNull(
      attention, place,
      {"replace_with_linear", "window_length", "sparsify", "num_sink_tokens",
       "use_prefill_window_in_sink_attention", "unshifted_sink"}));
  constexpr char kGroup[] = "n_heads_in_group";
  INLAY_ASSIGN_OR_RETURN(const bool none, JsonBool(attention, "no_op", false));
  if (none || JsonFind(attention, kGroup) == nullptr) return 0;
  INLAY_ASSIGN_OR_RETURN(const int64_t group,
                         JsonInt(attention, kGroup, 1, 1, num_heads));
  if (num_heads % group == 0) return num_heads / static_cast<int>(group);
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s's %s is %d; it must divide num_attention_heads, %d",
      place, kGroup, group, num_heads));
}

absl::StatusOr<int64_t> ReadWidth(const Json& ffn, const std::string& place,
                                  int64_t hidden_size) {
  INLAY_RETURN_IF_ERROR(
      ExpectNull(ffn, place, {"replace_with_linear", "sparsify"}));
  constexpr char kFactor[] = "ffn_mult";
  INLAY_ASSIGN_OR_RETURN(const bool none, JsonBool(ffn, "no_op", false));
  if (none || JsonFind(ffn, kFactor) == nullptr) return 0;
  INLAY_ASSIGN_OR_RETURN(const double factor,
                         JsonNumber(ffn, kFactor, 1.0, 1e-6, 1e3));
  const int64_t rounded = NasWidth(factor, hidden_size);
  if (rounded <= kMaxHidden) return rounded;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s's %s is %g, which makes an MLP %d wide; it may be %d",
      place, kFactor, factor, rounded, kMaxHidden));
}

absl::Status BadList(const char* key, const Json& got, int num_layers) {
  return absl::InvalidArgumentError(
      FormattedString("config.json: %s is %s; it must have %d entries", key,
                      got.is_array() ? "a list of another length"
                                     : std::string(got.type_name()),
                      num_layers));
}

absl::StatusOr<std::vector<NasLayer>> ReadBlocks(const Json& blocks,
                                                 const DecoderConfig& config) {
  constexpr char kBlocks[] = "block_configs";
  const auto count = static_cast<size_t>(config.num_layers);
  if (!blocks.is_array() || blocks.size() != count) {
    return BadList(kBlocks, blocks, config.num_layers);
  }
  std::vector<NasLayer> layers(count);
  for (size_t i = 0; i < count; ++i) {
    const auto part = [&](const char* name) {
      const Json* found = JsonFind(blocks[i], name);
      return found == nullptr ? Json::object() : *found;
    };
    const auto place = [&](const char* name) {
      return FormattedString("%s[%d].%s", kBlocks, i, name);
    };
    INLAY_ASSIGN_OR_RETURN(
        layers[i].num_kv_heads,
        ReadKvHeads(part("attention"), place("attention"), config.num_heads));
    INLAY_ASSIGN_OR_RETURN(layers[i].width, ReadWidth(part("ffn"), place("ffn"),
                                                      config.hidden_size));
  }
  return layers;
}

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
    return BadList(kHeads, *heads, config.num_layers);
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
    layers[i].num_kv_heads = static_cast<int>(own);
  }
  return layers;
}

absl::StatusOr<DecoderSpec> NasSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.max_positions = 2048;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  const Json* blocks = JsonFind(json, "block_configs");
  INLAY_ASSIGN_OR_RETURN(const std::vector<NasLayer> layers,
                         blocks != nullptr ? ReadBlocks(*blocks, config)
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
    sizes.num_kv_heads = std::max(own.num_kv_heads, 1);
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
