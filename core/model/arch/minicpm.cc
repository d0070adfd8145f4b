// MiniCPM (arXiv:2404.06395; 1, 2 and 4): Llama with factors of embeddings, of
// what each part adds and of logits (the width against `dim_model_base`).
// MiniCPM 3: the same with DeepSeek's latent attention, rope by halves. Source
// of names and defaults: transformers' MiniCPM3Config; the published
// configuration_minicpm.py of MiniCPM-2B and MiniCPM4, whose selection of keys
// (`sparse_config`) is not here.
#include <cmath>
#include <optional>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct MiniCpmFactors {
  float embedding = 1.0f;
  float residual = 1.0f;
  float logits = 1.0f;
};

// As config.json has them, and what a family assumes where it is silent.
struct MiniCpmScales {
  double embedding = 12.0;
  double depth = 1.4;
  double base = 256.0;
};

// Depth and base that are null leave their factors at 1.
absl::StatusOr<MiniCpmFactors> ReadMiniCpmFactors(
    const Json& json, const DecoderConfig& config,
    const MiniCpmScales& defaults) {
  MiniCpmFactors factors;
  INLAY_ASSIGN_OR_RETURN(
      const double embedding,
      JsonNumber(json, "scale_emb", defaults.embedding, -1e6, 1e6));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> depth,
      ReadOptionalNumber(json, "scale_depth", defaults.depth, -1e6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const std::optional<double> base,
                         ReadOptionalNumber(json, "dim_model_base",
                                            defaults.base, 1.0, kMaxHidden));
  factors.embedding = static_cast<float>(embedding);
  if (depth.has_value()) {
    factors.residual = static_cast<float>(
        *depth / std::sqrt(static_cast<double>(config.num_layers)));
  }
  if (base.has_value()) {
    factors.logits =
        static_cast<float>(*base / static_cast<double>(config.hidden_size));
  }
  return factors;
}

void Scale(const MiniCpmFactors& factors, DecoderSpec* spec) {
  spec->embedding_scale = factors.embedding;
  spec->logit_scale = factors.logits;
  for (LayerSpec& layer : spec->layers) {
    for (BlockSpec& block : layer.blocks) block.scale = factors.residual;
  }
}

absl::StatusOr<LatentConfig> ReadMiniCpmLatent(const Json& json,
                                               const DecoderConfig& config) {
  if (config.hidden_size % config.num_heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: hidden_size is %d with num_attention_heads %d; it must "
        "be a multiple",
        config.hidden_size, config.num_heads));
  }
  LatentConfig defaults;
  defaults.query_rank = 768;
  defaults.rank = 256;
  defaults.key_dim = 64;
  defaults.rope_dim = 32;
  defaults.value_dim = static_cast<int>(config.hidden_size / config.num_heads);
  return ReadLatentConfig(json, config.num_heads, defaults);
}

absl::StatusOr<DecoderSpec> MiniCpm3Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 73448;
  defaults.hidden_size = 2560;
  defaults.intermediate_size = 6400;
  defaults.num_layers = 62;
  defaults.num_heads = 40;
  defaults.head_dim = 64;  // not used: latent attention has its own
  defaults.max_positions = 32768;
  defaults.norm_epsilon = 1e-5;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const MiniCpmFactors factors,
                         ReadMiniCpmFactors(json, config, {}));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadMiniCpmLatent(json, config));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadLatentRope(json, config, latent));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LatentAttentionSpec attention =
        RotatedLatentAttention(config, latent, rope, prefix);
    attention.rope_style = RopeStyle::kHalf;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, std::move(attention),
                        LlamaStyleMlp(config, prefix, mlp_bias)));
  }
  Scale(factors, &spec);
  return spec;
}

absl::StatusOr<DecoderSpec> MiniCpmSpec(const Json& json) {
  for (const char* key : {"num_experts", "sparse_config"}) {
    const Json* value = JsonFind(json, key);
    if (value == nullptr || *value == Json(0)) continue;
    return absl::UnimplementedError(
        FormattedString("config.json: %s is %s; supported here is null", key,
                        ShownJson(*value)));
  }
  DecoderDefaults defaults;
  defaults.max_positions = 2048;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const MiniCpmFactors factors,
                         ReadMiniCpmFactors(json, config, {1.0, 1.0, 1.0}));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, LlamaStyleSpec(json, config, {}));
  Scale(factors, &spec);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMiniCpm(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MiniCpmSpec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeMiniCpm3(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MiniCpm3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
