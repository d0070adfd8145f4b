// Phi-3 (arXiv:2404.14219): Llama with fused q, k, v and fused gate and up,
// LongRoPE in its long variants, partial rotary in Phi-4-mini. The text of
// Phi-4-multimodal (arXiv:2503.01743), whose adapters are of images and speech.
#include <initializer_list>
#include <string>
#include <variant>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults Phi3Defaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 32064;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 8192;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

absl::StatusOr<DecoderSpec> Phi3Spec(const Json& json,
                                     const DecoderDefaults& defaults) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec rope,
      ReadRope(json, config, {.partial = 1.0, .yarn_is_longrope = true}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    attention.window = window;
    const int64_t qkv_width =
        int64_t{config.num_heads + 2 * config.num_kv_heads} * config.head_dim;
    attention.qkv = {
        {prefix + "self_attn.qkv_proj", qkv_width, config.hidden_size}};
    MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
    mlp.input = {{prefix + "mlp.gate_up_proj", 2 * config.intermediate_size,
                  config.hidden_size}};
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention, mlp));
  }
  return spec;
}

// What published files call a layer with adapters beside it.
void FindBesideAdapters(const WeightLoader& weights, LinearSpec* linear) {
  const std::string name = linear->name + ".base_layer";
  if (weights.Has(name + ".weight")) linear->name = name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakePhi3(const Json& config,
                                                ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         Phi3Spec(config, Phi3Defaults()));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakePhi4Multimodal(const Json& config,
                                                          ModelBuild& build) {
  DecoderDefaults defaults = Phi3Defaults();
  defaults.vocab_size = 200064;
  defaults.num_kv_heads = UnlessNull(config, "num_key_value_heads", 8);
  defaults.max_positions = 131072;
  // Of published files; transformers does not read them.
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(config, key, false));
  }
  Json json = config;
  if (!json.contains("original_max_position_embeddings")) {
    json["original_max_position_embeddings"] = 4096;
  }
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, Phi3Spec(json, defaults));
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.blocks[0].part);
    auto& mlp = std::get<MlpSpec>(layer.blocks[1].part);
    for (LinearSpec* linear :
         {&attention.qkv[0], &attention.output, &mlp.input[0], &mlp.output}) {
      FindBesideAdapters(build.weights, linear);
    }
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
