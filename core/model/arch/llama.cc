// Llama 1 to 3 (arXiv:2302.13971, 2307.09288, 2407.21783), and families that
// are Llama but for little: Arcee's foundation models (AFM-4.5B) with an MLP of
// squared ReLUs, no gate; Helium (Kyutai) with rope of neighbours; Jais 2
// (Inception) with Arcee's MLP, LayerNorms and biases; InternLM 3 (Shanghai AI
// Laboratory), whose config.json has other names for biases; IQuest-Coder
// (IQuestLab, 2026); Orion (OrionStar, arXiv:2401.12246) with LayerNorms. Under
// names of their own and no other difference: Yi's first files
// (arXiv:2403.04652), XVERSE, Aquila 2 (arXiv:2408.07410). The text of Llama
// 3.2 Vision (mllama), whose layers that attend to images are passed over where
// there are none.
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<std::unique_ptr<Model>> Build(const Json& json,
                                             const DecoderDefaults& defaults,
                                             const LlamaVariant& variant,
                                             ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         LlamaStyleSpec(json, config, variant));
  return BuildDecoder(spec, build);
}

// cross_attention_layers as a flag a layer; numbers that are no layer's count
// for nothing.
absl::StatusOr<std::vector<bool>> ReadImageLayers(const Json& json,
                                                  int num_layers) {
  const char* key = "cross_attention_layers";
  const Json published = {3, 8, 13, 18, 23, 28, 33, 38};
  const Json* own = JsonFind(json, key);
  const Json& list = own == nullptr ? published : *own;
  std::vector<bool> layers(static_cast<size_t>(num_layers), false);
  int left = num_layers;
  bool is_list = list.is_array();
  for (size_t i = 0; is_list && i < list.size(); ++i) {
    is_list = list[i].is_number_integer();
    if (!is_list) break;
    const auto layer = list[i].get<int64_t>();
    if (layer < 0 || layer >= num_layers) continue;
    if (!layers[static_cast<size_t>(layer)]) --left;
    layers[static_cast<size_t>(layer)] = true;
  }
  if (is_list && left > 0) return layers;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be an array of numbers of layers, not of "
      "all %d",
      key, ShownJson(list), num_layers));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const Json& config,
                                                 ModelBuild& build) {
  return Build(config, {}, {}, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeArcee(const Json& config,
                                                 ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 18432;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.activation = "relu2";
  return Build(config, defaults, {.make_mlp = LlamaStylePlainMlp}, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeHelium(const Json& config,
                                                  ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 48000;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 7040;
  defaults.num_layers = 24;
  defaults.num_heads = 20;
  defaults.num_kv_heads = 20;
  defaults.head_dim = UnlessNull(config, "head_dim", 128);
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-8;
  return Build(config, defaults,
               {.may_bias_output = false,
                .rope = {.theta = 100000.0},
                .rope_style = RopeStyle::kInterleaved},
               build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeJais2(const Json& config,
                                                 ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 150272;
  defaults.hidden_size = 3328;
  defaults.intermediate_size = 26624;
  defaults.num_heads = 26;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.activation = "relu2";
  return Build(config, defaults,
               {.norm = NormKind::kLayer,
                .make_mlp = LlamaStylePlainMlp,
                .biases = true},
               build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeInternLm3(const Json& config,
                                                     ModelBuild& build) {
  const Json json = WithUsualNames(
      config, {{"qkv_bias", "attention_bias"}, {"bias", "mlp_bias"}});
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool other_bias,
                         JsonBool(json, "mlp_bias", false));
  if (bias != other_bias) {
    return absl::UnimplementedError(
        "config.json: qkv_bias is another than bias; supported here is one for "
        "all");
  }
  DecoderDefaults defaults;
  defaults.vocab_size = 128512;
  defaults.intermediate_size = 10240;
  defaults.num_layers = 48;
  defaults.num_kv_heads = 2;
  defaults.head_dim = UnlessNull(config, "head_dim", 128);
  defaults.max_positions = 32768;
  defaults.norm_epsilon = 1e-5;
  return Build(json, defaults, {}, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeOrion(const Json& config,
                                                 ModelBuild& build) {
  // The published code has no biases, whatever is said of them.
  INLAY_RETURN_IF_ERROR(ExpectFlag(config, "attention_bias", false));
  DecoderDefaults defaults;
  defaults.vocab_size = 84608;
  defaults.intermediate_size = 15360;
  defaults.num_layers = 40;
  defaults.num_heads = 40;
  defaults.num_kv_heads = UnlessNull(config, "num_key_value_heads", 40);
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  return Build(config, defaults, {.norm = NormKind::kLayer}, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeIQuestCoder(const Json& json,
                                                       ModelBuild& build) {
  // Of the published code, and in no published file.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_sliding_window", false));
  if (JsonFind(json, "clip_qkv") != nullptr) {
    return absl::UnimplementedError(
        "config.json: clip_qkv is set; supported here is null");
  }
  DecoderDefaults defaults;
  defaults.vocab_size = 76800;
  defaults.hidden_size = 5120;
  defaults.intermediate_size = 27648;
  defaults.num_layers = 80;
  defaults.num_heads = 40;
  defaults.num_kv_heads = UnlessNull(json, "num_key_value_heads", 8);
  defaults.head_dim = UnlessNull(json, "head_dim", 128);
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  return Build(json, defaults, {}, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeMllama(const Json& json,
                                                  ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128256;
  defaults.intermediate_size = 14336;
  defaults.num_layers = 40;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  config.tie_embeddings = false;  // whatever is said of that
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sees_images,
                         ReadImageLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(
      DecoderSpec spec,
      LlamaStyleSpec(json, config, {.rope = {.theta = 500000.0}}));
  std::vector<LayerSpec> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!sees_images[i]) layers.push_back(std::move(spec.layers[i]));
  }
  spec.layers = std::move(layers);
  // The image's token among them, which text has not.
  constexpr int64_t kMoreRows = 8;
  spec.embedding_rows = config.vocab_size + kMoreRows;
  return BuildDecoder(spec, build);
}

}  // namespace inlay
