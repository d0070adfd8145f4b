// Llama 1 to 3 (arXiv:2302.13971, 2307.09288, 2407.21783); Arcee's foundation
// models (AFM-4.5B), which are Llamas with an MLP of squared ReLUs, no gate.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

using MakeMlp = MlpSpec (*)(const DecoderConfig&, const std::string&, bool);

absl::StatusOr<DecoderSpec> LlamaSpec(const Json& json,
                                      const DecoderDefaults& defaults,
                                      MakeMlp make_mlp) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(
        config, prefix, NormKind::kRms,
        LlamaStyleAttention(config, prefix, attention_bias, attention_bias),
        make_mlp(config, prefix, mlp_bias)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLlama(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         LlamaSpec(config, {}, LlamaStyleMlp));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeArcee(const Json& config,
                                                 ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 18432;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.activation = "relu2";
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         LlamaSpec(config, defaults, LlamaStylePlainMlp));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
