// SmolLM3 (Hugging Face, 2025): Llama with layers without rope, every fourth
// one where the file does not list them.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// [num_layers], 0: none.
absl::StatusOr<std::vector<int>> ReadSmolLmWindows(
    const Json& json, const std::vector<bool>& rope) {
  const int num_layers = static_cast<int>(rope.size());
  std::vector<int> windows(rope.size(), 0);
  INLAY_ASSIGN_OR_RETURN(const bool use,
                         JsonBool(json, "use_sliding_window", false));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!use) return windows;
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  for (size_t i = 0; i < windows.size(); ++i) {
    if (sliding.empty() ? !rope[i] : sliding[i]) windows[i] = window;
  }
  return windows;
}

absl::StatusOr<DecoderSpec> SmolLm3Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2048;
  defaults.num_layers = 36;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 4;
  defaults.max_positions = 32768;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> with_rope,
                         ReadRopeLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int> windows,
                         ReadSmolLmWindows(json, with_rope));
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = 2e6}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention =
        LlamaStyleAttention(config, prefix, attention_bias, attention_bias);
    attention.window = windows[static_cast<size_t>(i)];
    if (!with_rope[static_cast<size_t>(i)]) attention.rope = -1;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                        LlamaStyleMlp(config, prefix, mlp_bias)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeSmolLm3(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, SmolLm3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
