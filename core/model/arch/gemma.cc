// Gemma (arXiv:2403.08295).
#include "core/model/arch.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> GemmaSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 24576;
  defaults.num_layers = 28;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 16;
  defaults.head_dim = 256;
  defaults.max_positions = 8192;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadGemmaConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectOneWay(json));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = GemmaStyleDecoder(config);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRmsZeroCentred,
                        LlamaStyleAttention(config, prefix, bias, bias),
                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGemma(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GemmaSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
