// Granite 3 (IBM, 2024): Llama with four multipliers, of embeddings, attention
// scores, what each part adds to the residual stream, and logits.
// HyperCLOVA X SEED Think (arXiv:2506.22403): the same with norms after parts,
// too, and a multiplier of logits that does not divide. Granite SWA (IBM,
// 2026): the same with windows, sinks and rotary bases of layers.
#include "core/model/arch.h"
#include "core/model/arch/granite_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr double kMaxMultiplier = 1e6;

struct Multipliers {
  double embedding = 1.0;
  double attention = 1.0;
  double residual = 1.0;
  double logits = 1.0;  // divides
};

absl::StatusOr<Multipliers> ReadMultipliers(const Json& json) {
  const auto read = [&](const char* key) {
    return JsonNumber(json, key, 1.0, 1e-6, kMaxMultiplier);
  };
  Multipliers out;
  INLAY_ASSIGN_OR_RETURN(out.embedding, read("embedding_multiplier"));
  INLAY_ASSIGN_OR_RETURN(out.attention, read("attention_multiplier"));
  INLAY_ASSIGN_OR_RETURN(out.residual, read("residual_multiplier"));
  INLAY_ASSIGN_OR_RETURN(out.logits, read("logits_scaling"));
  return out;
}

absl::StatusOr<DecoderSpec> GraniteSpec(const Json& json,
                                        const DecoderConfig& config,
                                        const Multipliers& multipliers,
                                        const GraniteSight& sight) {
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = sight.max_positions;
  spec.ropes = sight.ropes;
  spec.embedding_scale = static_cast<float>(multipliers.embedding);
  spec.logit_scale = static_cast<float>(1.0 / multipliers.logits);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention =
        LlamaStyleAttention(config, prefix, attention_bias, attention_bias);
    attention.scale = static_cast<float>(multipliers.attention);
    sight.Apply(i, prefix, &attention);
    LayerSpec layer = LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                                      LlamaStyleMlp(config, prefix, mlp_bias));
    for (BlockSpec& block : layer.blocks) {
      block.scale = static_cast<float>(multipliers.residual);
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGranite(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig sizes,
                         ReadDecoderConfig(config, {}));
  INLAY_ASSIGN_OR_RETURN(const Multipliers multipliers,
                         ReadMultipliers(config));
  INLAY_ASSIGN_OR_RETURN(const GraniteSight sight,
                         ReadGraniteSight(config, sizes));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         GraniteSpec(config, sizes, multipliers, sight));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeGraniteSwa(const Json& json,
                                                      ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 100352;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 8192;
  defaults.num_layers = 24;
  defaults.num_heads = 20;
  defaults.num_kv_heads = UnlessNull(json, "num_key_value_heads", 4);
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const Multipliers multipliers, ReadMultipliers(json));
  INLAY_ASSIGN_OR_RETURN(const GraniteSight sight,
                         ReadGraniteWindows(json, config));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         GraniteSpec(json, config, multipliers, sight));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeHyperClovaX(const Json& json,
                                                       ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, {}));
  INLAY_ASSIGN_OR_RETURN(Multipliers multipliers, ReadMultipliers(json));
  if (JsonFind(json, "attention_multiplier") == nullptr) {
    multipliers.attention = 1.0 / std::sqrt(double(config.head_dim));
  }
  INLAY_ASSIGN_OR_RETURN(const bool post_norms,
                         JsonBool(json, "use_post_norm", true));
  INLAY_ASSIGN_OR_RETURN(const GraniteSight sight,
                         ReadGraniteSight(json, config));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         GraniteSpec(json, config, multipliers, sight));
  spec.logit_scale = static_cast<float>(multipliers.logits);
  for (int i = 0; post_norms && i < config.num_layers; ++i) {
    std::vector<BlockSpec>& blocks = spec.layers[static_cast<size_t>(i)].blocks;
    const std::string prefix = LayerPrefix(i);
    blocks[0].post_norm = {NormKind::kRms, prefix + "post_norm1",
                           config.norm_epsilon};
    blocks[1].post_norm = {NormKind::kRms, prefix + "post_norm2",
                           config.norm_epsilon};
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
