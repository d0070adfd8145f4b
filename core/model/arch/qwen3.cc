// Qwen 3 (arXiv:2505.09388): Llama with norms on each head of q and k.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Qwen3Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.num_kv_heads = 32;
  defaults.head_dim = 128;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int> windows,
                         QwenWindows(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = windows[static_cast<size_t>(i)];
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen3(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
