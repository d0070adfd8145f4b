// Nemotron-3 8B and Nemotron-4 (arXiv:2402.16819), and Minitron of them
// (arXiv:2407.14679): LayerNorms whose weights are stored without their 1, an
// MLP of squared ReLUs without a gate, rope on a part of each head.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> NemotronSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 24576;
  defaults.num_heads = 48;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "norm_eps";
  defaults.activation = "relu2";
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.5}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerZeroCentred);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(
        config, prefix, NormKind::kLayerZeroCentred,
        LlamaStyleAttention(config, prefix, attention_bias, attention_bias),
        LlamaStylePlainMlp(config, prefix, mlp_bias)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeNemotron(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, NemotronSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
