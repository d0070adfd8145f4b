// Arctic (Snowflake, 2024): layers of attention and an MLP, and beside them
// experts that read what the attention does, through a norm of their own; what
// they give is added when the layer's other blocks have run. Layers without
// experts are Llama's. Source: the published modeling_arctic.py.
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct ArcticConfig {
  MoeConfig moe;
  int64_t every = 1;  // the last of so many layers has experts
  bool parallel = false;
};

absl::StatusOr<ArcticConfig> ReadArcticConfig(const Json& json,
                                              const DecoderConfig& config) {
  ArcticConfig arctic;
  // Weights are normalised, whatever is said; experts are as wide as MLPs.
  INLAY_ASSIGN_OR_RETURN(arctic.moe,
                         ReadMoeConfig(json, "intermediate_size",
                                       {8, 1, config.intermediate_size, true}));
  arctic.moe.routing.normalised = true;
  INLAY_ASSIGN_OR_RETURN(
      arctic.every, JsonInt(json, "moe_layer_frequency", 2, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(arctic.parallel,
                         JsonFlag(json, "parallel_attn_mlp_res", false));
  return arctic;
}

MlpSpec ArcticMlp(const DecoderConfig& config, const std::string& name,
                  int64_t width) {
  return SharedExpert(config, name, width, {"w1", "w3", "w2"});
}

LayerSpec ArcticLayer(const DecoderConfig& config, const ArcticConfig& arctic,
                      int layer) {
  const std::string prefix = LayerPrefix(layer);
  const std::string sparse = prefix + "block_sparse_moe.";
  AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
  if ((layer + 1) % arctic.every != 0) {
    return LlamaStyleLayer(
        config, prefix, NormKind::kRms, std::move(attention),
        ArcticMlp(config, sparse + "mlp.", config.intermediate_size));
  }
  LayerSpec spec =
      LlamaStyleLayer(config, prefix, NormKind::kRms, std::move(attention),
                      LlamaStyleMoe(config, arctic.moe, sparse, "gate", false,
                                    {"w1", "w3", "w2"}));
  if (!arctic.parallel) return spec;
  BlockSpec experts = std::move(spec.blocks[1]);
  experts.deferred = true;
  spec.blocks[1] = BlockSpec();
  spec.blocks[1].pre_norm = {NormKind::kRms, prefix + "residual_layernorm",
                             config.norm_epsilon};
  spec.blocks[1].part =
      ArcticMlp(config, prefix + "residual_mlp.", config.hidden_size);
  spec.blocks.insert(spec.blocks.begin(), std::move(experts));
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeArctic(const Json& json,
                                                  ModelBuild& build) {
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "attention_bias", false));
  DecoderDefaults defaults;
  defaults.intermediate_size = 14336;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  if (int64_t{config.num_heads} * config.head_dim != config.hidden_size) {
    return absl::UnimplementedError(FormattedString(
        "config.json: head_dim is %d; supported here are heads that make up "
        "hidden_size, %d",
        config.head_dim, config.hidden_size));
  }
  INLAY_ASSIGN_OR_RETURN(const ArcticConfig arctic,
                         ReadArcticConfig(json, config));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = 1e6}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    LayerSpec layer = ArcticLayer(config, arctic, i);
    for (BlockSpec& block : layer.blocks) {
      auto* attention = std::get_if<AttentionSpec>(&block.part);
      if (attention != nullptr) attention->window = window;
    }
    spec.layers.push_back(std::move(layer));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
