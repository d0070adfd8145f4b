// GPT (Radford et al., 2018, "GPT-1"): GPT-2 with norms after each sum, none at
// the end, and other names. Source of names and defaults: transformers'
// OpenAIGPTConfig.
#include <cmath>
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// What it calls GELU is the approximation by tanh.
absl::StatusOr<Activation> ReadAfn(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const std::string afn,
                         JsonString(json, "afn", "gelu"));
  if (afn == "gelu") return Activation::kGeluTanh;
  return ReadActivation(json, "afn", "gelu");
}

absl::StatusOr<DecoderConfig> ReadOpenAiGptConfig(const Json& json) {
  Json named = WithUsualNames(json, {{"n_embd", "hidden_size"},
                                     {"n_layer", "num_hidden_layers"},
                                     {"n_head", "num_attention_heads"},
                                     {"n_positions", "max_position_embeddings"},
                                     {"afn", "hidden_act"}});
  // Decoders' keys that mean nothing here.
  for (const char* key :
       {"num_key_value_heads", "head_dim", "intermediate_size", "hidden_act"}) {
    named.erase(key);
  }
  DecoderDefaults defaults;
  defaults.vocab_size = 40478;
  defaults.hidden_size = 768;
  defaults.num_layers = 12;
  defaults.num_heads = 12;
  defaults.max_positions = 512;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_epsilon";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(named, defaults));
  if (int64_t{config.num_heads} * config.head_dim != config.hidden_size ||
      config.max_positions > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: n_embd is %d with n_head %d, n_positions is %d; n_embd "
        "must be a multiple, positions at most %d",
        config.hidden_size, config.num_heads, config.max_positions,
        kMaxHidden));
  }
  config.intermediate_size = 4 * config.hidden_size;
  INLAY_ASSIGN_OR_RETURN(config.activation, ReadAfn(json));
  return config;
}

LayerSpec OpenAiGptLayer(const DecoderConfig& config, int layer) {
  const std::string prefix = FormattedString("transformer.h.%d.", layer);
  const int64_t hidden = config.hidden_size;
  AttentionSpec attention;
  attention.num_heads = attention.num_kv_heads = config.num_heads;
  attention.head_dim = config.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  attention.qkv = {{prefix + "attn.c_attn", 3 * hidden, hidden, true, true}};
  attention.output = {prefix + "attn.c_proj", hidden, hidden, true, true};
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.c_fc", mlp.width, hidden, true, true}};
  mlp.output = {prefix + "mlp.c_proj", hidden, mlp.width, true, true};

  LayerSpec spec;
  spec.blocks.resize(2);
  spec.blocks[0].sum_norm = {NormKind::kLayer, prefix + "ln_1",
                             config.norm_epsilon};
  spec.blocks[0].part = std::move(attention);
  spec.blocks[1].sum_norm = {NormKind::kLayer, prefix + "ln_2",
                             config.norm_epsilon};
  spec.blocks[1].part = std::move(mlp);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOpenAiGpt(const Json& json,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadOpenAiGptConfig(json));
  DecoderSpec spec;
  spec.optional_prefix = "transformer.";
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.max_positions = config.max_positions;
  spec.embedding = "transformer.tokens_embed.weight";
  spec.position_embedding = "transformer.positions_embed.weight";
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(OpenAiGptLayer(config, i));
  }
  (config.tie_embeddings ? spec.tied_head : spec.head) = "lm_head";
  return BuildDecoder(spec, build);
}

}  // namespace inlay
