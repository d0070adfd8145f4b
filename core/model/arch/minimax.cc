// MiniMax-01 (arXiv:2501.08313): lightning attention, attention in some layers,
// a mixture of experts in each. Source of names and defaults: transformers'
// MiniMaxConfig.
//
// Parts read a norm's output and are added to that, not to what came before it:
//   x = norm(h); h = alpha x + beta part(x)
// which is a norm after each sum. An RMS norm does not see a factor of all it
// normalises but beside its epsilon, so that x + (beta / alpha) part(x) and
// epsilon / alpha^2 are the same.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of the norm of all heads, which config.json does not name.
constexpr float kHeadsEpsilon = 1e-6f;

struct SumFactors {
  float alpha = 1.0f;  // of what the part reads
  float beta = 1.0f;   // of what it gives
};

absl::StatusOr<SumFactors> ReadSumFactors(const Json& json,
                                          const std::string& prefix) {
  SumFactors factors;
  INLAY_ASSIGN_OR_RETURN(
      const double alpha,
      JsonNumber(json, prefix + "_alpha_factor", 1.0, 1e-3, 1e3));
  INLAY_ASSIGN_OR_RETURN(
      const double beta,
      JsonNumber(json, prefix + "_beta_factor", 1.0, -1e3, 1e3));
  factors.alpha = static_cast<float>(alpha);
  factors.beta = static_cast<float>(beta);
  return factors;
}

// Which layers have lightning attention.
absl::StatusOr<std::vector<bool>> ReadLightningLayers(const Json& json,
                                                      int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> layers,
                         ReadLayerKinds(json, "layer_types", num_layers,
                                        "linear_attention", "full_attention"));
  for (int i = static_cast<int>(layers.size()); i < num_layers; ++i) {
    layers.push_back(i % 2 == 1);
  }
  return layers;
}

// Slopes of ALiBi (arXiv:2108.12409), less the deeper a layer lies; e to the
// minus them.
std::vector<float> Decays(const DecoderConfig& config, int layer) {
  const double depth = 1.0 - layer / (config.num_layers - 1 + 1e-5) + 1e-5;
  std::vector<float> decays;
  for (int head = 1; head <= config.num_heads; ++head) {
    const double slope = std::exp2(-8.0 * head / config.num_heads);
    decays.push_back(static_cast<float>(std::exp(-slope * depth)));
  }
  return decays;
}

// GGUF files call the output as they call attention's.
LightningSpec Lightning(const DecoderConfig& config, int layer,
                        const WeightLoader& weights) {
  const std::string prefix = LayerPrefix(layer) + "self_attn.";
  LightningSpec spec;
  spec.num_heads = config.num_heads;
  spec.head_dim = config.head_dim;
  spec.activation = config.activation;
  const int64_t hidden = config.hidden_size;
  spec.qkv.push_back({prefix + "qkv_proj", 3 * spec.width(), hidden});
  spec.gate = LinearSpec{prefix + "output_gate", spec.width(), hidden};
  const bool is_renamed = weights.Has(prefix + "o_proj.weight");
  spec.output = {prefix + (is_renamed ? "o_proj" : "out_proj"), hidden,
                 spec.width()};
  spec.norm = {NormKind::kRms, prefix + "norm", kHeadsEpsilon};
  spec.decays = Decays(config, layer);
  return spec;
}

BlockSpec SumBlock(PartSpec part, const SumFactors& factors) {
  BlockSpec block;
  block.scale = factors.beta / factors.alpha;
  block.part = std::move(part);
  return block;
}

absl::StatusOr<DecoderSpec> MiniMaxSpec(const Json& json,
                                        const WeightLoader& weights) {
  DecoderDefaults defaults;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {8, 2, 14336, true}));
  moe.routing.normalised = true;  // whatever norm_topk_prob says
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec rope,
      ReadRope(json, config, {.theta = 1e6, .partial = 1.0}));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> lightning,
                         ReadLightningLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const SumFactors full,
                         ReadSumFactors(json, "full_attn"));
  INLAY_ASSIGN_OR_RETURN(const SumFactors linear,
                         ReadSumFactors(json, "linear_attn"));
  INLAY_ASSIGN_OR_RETURN(const SumFactors mlp, ReadSumFactors(json, "mlp"));
  const auto norm_after = [&](const std::string& name,
                              const SumFactors& factors) {
    return NormSpec{NormKind::kRms, name,
                    config.norm_epsilon / (factors.alpha * factors.alpha)};
  };

  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding_norm = {NormKind::kRms, LayerPrefix(0) + "input_layernorm",
                         config.norm_epsilon};
  spec.final_norm = norm_after(spec.final_norm.name, mlp);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec layer;
    const bool is_lightning = lightning[static_cast<size_t>(i)];
    const SumFactors& factors = is_lightning ? linear : full;
    if (is_lightning) {
      layer.blocks.push_back(SumBlock(Lightning(config, i, weights), factors));
    } else {
      AttentionSpec attention =
          LlamaStyleAttention(config, prefix, false, false);
      attention.window = window;
      layer.blocks.push_back(SumBlock(std::move(attention), factors));
    }
    layer.blocks.back().sum_norm =
        norm_after(prefix + "post_attention_layernorm", factors);
    layer.blocks.push_back(
        SumBlock(LlamaStyleMoe(config, moe, prefix + "block_sparse_moe.",
                               "gate", false, {"w1", "w3", "w2"}),
                 mlp));
    if (i + 1 < config.num_layers) {
      layer.blocks.back().sum_norm =
          norm_after(LayerPrefix(i + 1) + "input_layernorm", mlp);
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMiniMax(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         MiniMaxSpec(config, build.weights));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
