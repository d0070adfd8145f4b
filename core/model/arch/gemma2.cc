// Gemma 2 (arXiv:2408.00118): norms on both sides of each part, softcaps,
// windows on every other layer. VaultGemma (arXiv:2510.15001): the same without
// the norms after parts.
#include "core/model/arch.h"
#include "core/model/arch/gemma_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Gemma2Spec(const Json& json, bool post_norms) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 2304;
  defaults.intermediate_size = 9216;
  defaults.num_layers = 26;
  defaults.num_heads = 8;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 256;
  defaults.max_positions = 8192;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadGemmaConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectOneWay(json));
  INLAY_ASSIGN_OR_RETURN(
      const GemmaAttention gemma,
      ReadGemmaAttention(json, config.num_layers,
                         {.attention_softcap = 50.0, .final_softcap = 30.0}));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = GemmaStyleDecoder(config);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.final_softcap = gemma.final_softcap;
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention =
        LlamaStyleAttention(config, prefix, gemma.bias, gemma.bias);
    attention.scale = gemma.scale;
    attention.softcap = gemma.attention_softcap;
    if (gemma.sliding[static_cast<size_t>(i)]) attention.window = gemma.window;
    spec.layers.push_back(SandwichLayer(config, prefix, attention,
                                        LlamaStyleMlp(config, prefix, false)));
    if (post_norms) continue;
    for (BlockSpec& block : spec.layers.back().blocks) block.post_norm = {};
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGemma2(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Gemma2Spec(config, true));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeVaultGemma(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Gemma2Spec(config, false));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
