// GPT-Neo (Black et al., 2021), and TinyStories' models (arXiv:2305.07759):
// GPT-2 with windows on every other layer and scores that are not scaled.
// Source of names and defaults: transformers' GPTNeoConfig.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadNeoConfig(const Json& json) {
  const Json named =
      WithUsualNames(json, {{"num_layers", "num_hidden_layers"},
                            {"num_heads", "num_attention_heads"}});
  DecoderDefaults defaults;
  defaults.vocab_size = 50257;
  INLAY_ASSIGN_OR_RETURN(defaults.hidden_size,
                         JsonInt(json, "hidden_size", 2048, 1, kMaxHidden));
  defaults.intermediate_size = 4 * defaults.hidden_size;
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  defaults.max_positions = 2048;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.activation = "gelu_new";
  defaults.activation_key = "activation_function";
  defaults.tie_embeddings = true;
  return ReadDecoderConfig(named, defaults);
}

absl::Status WrongLayers(const char* key, const Json& value, int num_layers) {
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must say \"global\" or \"local\" for each of "
      "%d layers",
      key, ShownJson(value), num_layers));
}

// Adds names, [..], to `local`: whether they are "local". False for others, and
// beyond so many layers.
bool AddLayers(const Json& names, int num_layers, std::vector<bool>* local) {
  if (!names.is_array()) return false;
  for (const Json& name : names) {
    if ((name != "global" && name != "local") ||
        local->size() >= static_cast<size_t>(num_layers)) {
      return false;
    }
    local->push_back(name == "local");
  }
  return true;
}

// Which layers have windows: attention_layers, a name each; or attention_types,
// [[["global", "local"], 12]]; without either they take turns.
absl::StatusOr<std::vector<bool>> ReadLocal(const Json& json, int num_layers) {
  const auto count = static_cast<size_t>(num_layers);
  std::vector<bool> local;
  const char* key = "attention_layers";
  const Json* value = JsonFind(json, key);
  if (value != nullptr) {
    const bool is_known =
        AddLayers(*value, num_layers, &local) && local.size() == count;
    if (!is_known) return WrongLayers(key, *value, num_layers);
    return local;
  }
  key = "attention_types";
  value = JsonFind(json, key);
  if (value == nullptr) {
    for (size_t i = 0; i < count; ++i) local.push_back(i % 2 == 1);
    return local;
  }
  bool is_known = value->is_array();
  for (size_t i = 0; is_known && i < value->size(); ++i) {
    const Json& item = (*value)[i];
    is_known = item.is_array() && item.size() == 2 &&
               item[1].is_number_unsigned() &&
               item[1].get<uint64_t>() <= kMaxLayers;
    for (uint64_t j = 0; is_known && j < item[1].get<uint64_t>(); ++j) {
      is_known = AddLayers(item[0], num_layers, &local);
    }
  }
  if (!is_known || local.size() != count) {
    return WrongLayers(key, *value, num_layers);
  }
  return local;
}

LayerSpec NeoLayer(const DecoderConfig& config, int layer, int window) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  const std::string name = prefix + "attn.attention.";
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, true);
  attention.rope = -1;
  attention.scale = 1.0f;
  attention.window = window;
  constexpr const char* kParts[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) attention.qkv[i].name = name + kParts[i];
  attention.output.name = name + "out_proj";
  MlpSpec mlp = LlamaStylePlainMlp(config, prefix, true);
  mlp.input.front().name = prefix + "mlp.c_fc";
  mlp.output.name = prefix + "mlp.c_proj";
  LayerSpec spec = LlamaStyleLayer(config, prefix, NormKind::kLayer,
                                   std::move(attention), std::move(mlp));
  spec.blocks[0].pre_norm.name = prefix + "ln_1";
  spec.blocks[1].pre_norm.name = prefix + "ln_2";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGptNeo(const Json& json,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadNeoConfig(json));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> local,
                         ReadLocal(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const int64_t window,
                         JsonInt(json, "window_size", 256, 1, kMaxPositions));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.optional_prefix = "transformer.";
  spec.embedding = "transformer.wte.weight";
  spec.position_embedding = "transformer.wpe.weight";
  spec.final_norm.name = "transformer.ln_f";
  for (int i = 0; i < config.num_layers; ++i) {
    const bool slides = local[static_cast<size_t>(i)];
    spec.layers.push_back(
        NeoLayer(config, i, slides ? static_cast<int>(window) : 0));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
