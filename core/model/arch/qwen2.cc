// Qwen 2 and 2.5 (arXiv:2407.10671): Llama with biases on q, k and v, and
// windows on the upper layers where they are switched on.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Qwen2Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.intermediate_size = 22016;
  defaults.num_kv_heads = 32;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int> windows,
                         QwenWindows(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, true, false);
    attention.window = windows[static_cast<size_t>(i)];
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen2(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen2Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
