// Qwen 1.5 and 2 with experts (arXiv:2407.10671): Qwen 2 with mixtures of
// experts on some layers, each with a shared expert behind a gate.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

MoeSpec Qwen2Experts(const DecoderConfig& config, const MoeConfig& moe,
                     int64_t shared_width, const std::string& prefix) {
  MoeSpec spec = LlamaStyleMoe(config, moe, prefix, "gate", false);
  spec.shared = SharedExpert(config, prefix + "shared_expert.", shared_width);
  spec.shared_gate =
      LinearSpec{prefix + "shared_expert_gate", 1, config.hidden_size};
  return spec;
}

// Without layer_types, every other one of the first max_window_layers, where
// Qwen 2 has those after them.
absl::StatusOr<std::vector<int>> Qwen2MoeWindows(const Json& json,
                                                 int num_layers) {
  INLAY_ASSIGN_OR_RETURN(const bool use,
                         JsonBool(json, "use_sliding_window", false));
  if (!use || JsonFind(json, "layer_types") != nullptr) {
    return QwenWindows(json, num_layers);
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         JsonInt(json, "max_window_layers", 28, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  std::vector<int> windows;
  for (int i = 0; i < num_layers; ++i) {
    windows.push_back(i % 2 == 0 && i < count ? window : 0);
  }
  return windows;
}

absl::StatusOr<DecoderSpec> Qwen2MoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.num_layers = 24;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 16;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const MoeConfig moe,
      ReadMoeConfig(json, "moe_intermediate_size", {60, 4, 1408, false}));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t shared_width,
      JsonInt(json, "shared_expert_intermediate_size", 5632, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                         ReadSparseLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(json, "qkv_bias", true));
  INLAY_ASSIGN_OR_RETURN(const std::vector<int> windows,
                         Qwen2MoeWindows(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, false);
    attention.window = windows[layer];
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (sparse[layer]) {
      mlp = Qwen2Experts(config, moe, shared_width, prefix + "mlp.");
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen2Moe(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen2MoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
