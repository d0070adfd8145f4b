// Seed-OSS (ByteDance, 2025): Llama with biases of q, k and v.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> SeedOssSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 155136;
  defaults.intermediate_size = 27648;
  defaults.num_layers = 64;
  defaults.num_heads = 80;
  defaults.num_kv_heads = 8;
  defaults.head_dim = UnlessNull(json, "head_dim", 128);
  defaults.max_positions = 524288;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", true));
  INLAY_ASSIGN_OR_RETURN(const bool output_bias,
                         JsonBool(json, "attention_out_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms,
                        LlamaStyleAttention(config, prefix, bias, output_bias),
                        LlamaStyleMlp(config, prefix, mlp_bias)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeSeedOss(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, SeedOssSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
