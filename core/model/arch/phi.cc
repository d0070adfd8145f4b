// Phi-1, 1.5 and 2 (arXiv:2306.11644, 2309.05463): attention and MLP side by
// side over one LayerNorm, rope on a part of each head, biases everywhere, in
// the head too.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderConfig> ReadPhiConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 51200;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 8192;
  defaults.num_layers = 24;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.activation = "gelu_new";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  if (config.tie_embeddings) {
    return absl::UnimplementedError(
        "config.json: tie_word_embeddings is true; supported here is false: "
        "the head has a bias");
  }
  return config;
}

LayerSpec PhiLayer(const DecoderConfig& config, int layer, bool head_norms) {
  const std::string prefix = LayerPrefix(layer);
  AttentionSpec attention = LlamaStyleAttention(config, prefix, true, true);
  attention.output.name = prefix + "self_attn.dense";
  if (head_norms) {
    AddHeadNorms(config, prefix, NormKind::kLayer, &attention);
    attention.q_norm.name = prefix + "self_attn.q_layernorm";
    attention.k_norm.name = prefix + "self_attn.k_layernorm";
  }
  MlpSpec mlp;
  mlp.width = config.intermediate_size;
  mlp.activation = config.activation;
  mlp.input = {{prefix + "mlp.fc1", mlp.width, config.hidden_size, true}};
  mlp.output = {prefix + "mlp.fc2", config.hidden_size, mlp.width, true};
  LayerSpec spec;
  spec.parallel = true;
  spec.pre_norm = {NormKind::kLayer, prefix + "input_layernorm",
                   config.norm_epsilon};
  spec.blocks.resize(2);
  spec.blocks[0].part = std::move(attention);
  spec.blocks[1].part = std::move(mlp);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakePhi(const Json& json,
                                               ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config, ReadPhiConfig(json));
  INLAY_ASSIGN_OR_RETURN(const bool head_norms,
                         JsonBool(json, "qk_layernorm", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.5}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.final_norm.name = "model.final_layernorm";
  spec.head_bias = true;
  for (int i = 0; i < config.num_layers; ++i) {
    spec.layers.push_back(PhiLayer(config, i, head_norms));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
