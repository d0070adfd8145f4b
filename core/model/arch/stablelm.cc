// StableLM (arXiv:2402.17834): 3B, Zephyr, StableLM 2 1.6B and 12B. LayerNorms,
// rope on a quarter of each head; in the 12B attention and MLP side by side
// over one norm, and LayerNorms of heads with weights for each.
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct StableLmConfig {
  DecoderConfig decoder;
  bool qkv_bias = false;
  bool head_norms = false;
  bool parallel = false;
};

absl::StatusOr<StableLmConfig> ReadStableLmConfig(const Json& json) {
  StableLmConfig out;
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6912;
  defaults.num_kv_heads = 32;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  INLAY_ASSIGN_OR_RETURN(out.decoder, ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(out.qkv_bias, JsonBool(json, "use_qkv_bias", false));
  INLAY_ASSIGN_OR_RETURN(out.head_norms, JsonBool(json, "qk_layernorm", false));
  INLAY_ASSIGN_OR_RETURN(out.parallel,
                         JsonBool(json, "use_parallel_residual", false));
  return out;
}

LayerSpec StableLmLayer(const StableLmConfig& stable, int layer) {
  const DecoderConfig& config = stable.decoder;
  const std::string prefix = LayerPrefix(layer);
  AttentionSpec attention =
      LlamaStyleAttention(config, prefix, stable.qkv_bias, false);
  if (stable.head_norms) {
    AddHeadNorms(config, prefix, NormKind::kLayerNoBias, &attention);
    attention.q_norm.name = prefix + "self_attn.q_layernorm.norms";
    attention.k_norm.name = prefix + "self_attn.k_layernorm.norms";
    attention.q_norm.heads = config.num_heads;
    attention.k_norm.heads = config.num_kv_heads;
    attention.q_norm.heads_apart = attention.k_norm.heads_apart = true;
  }
  LayerSpec spec =
      LlamaStyleLayer(config, prefix, NormKind::kLayer, std::move(attention),
                      LlamaStyleMlp(config, prefix, false));
  spec.parallel = stable.parallel;
  if (stable.parallel) {
    spec.pre_norm = std::exchange(spec.blocks[0].pre_norm, NormSpec());
    spec.blocks[1].pre_norm = NormSpec();
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeStableLm(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const StableLmConfig config, ReadStableLmConfig(json));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config.decoder, {.partial = 0.25}));
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, NormKind::kLayer);
  spec.max_positions = UsablePositions(config.decoder.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.decoder.num_layers; ++i) {
    spec.layers.push_back(StableLmLayer(config, i));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
