// Qwen 3 with experts (arXiv:2505.09388): Qwen 3 with mixtures of experts and
// no shared one.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Qwen3MoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.num_layers = 24;
  defaults.num_kv_heads = 4;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const MoeConfig moe,
      ReadMoeConfig(json, "moe_intermediate_size", {128, 8, 768, false}));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                         ReadSparseLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool slides,
                         JsonBool(json, "use_sliding_window", false));
  int window = 0;  // of all layers, whatever other families' keys say
  if (slides) {
    INLAY_ASSIGN_OR_RETURN(window, ReadWindow(json, 4096));
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = window;
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (sparse[layer]) {
      mlp = LlamaStyleMoe(config, moe, prefix + "mlp.", "gate", false);
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen3Moe(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen3MoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
