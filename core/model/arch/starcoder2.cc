// StarCoder 2 (arXiv:2402.19173): LayerNorm, biases, an MLP without gate, a
// window on every layer.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Starcoder2Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 49152;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 12288;
  defaults.num_layers = 30;
  defaults.num_heads = 24;
  defaults.num_kv_heads = 2;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "norm_epsilon";
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(json, "use_bias", true));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = window;
    MlpSpec mlp;
    mlp.width = config.intermediate_size;
    mlp.activation = config.activation;
    mlp.input = {{prefix + "mlp.c_fc", mlp.width, config.hidden_size, bias}};
    mlp.output = {prefix + "mlp.c_proj", config.hidden_size, mlp.width, bias};
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kLayer,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeStarcoder2(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Starcoder2Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
