// MiniCPM 3 (arXiv:2404.06395 and its successor): DeepSeek's latent attention
// with rope by halves, and factors of embeddings, of what each part adds and of
// logits (the width against `dim_model_base`). Source of names and defaults:
// transformers' MiniCPM3Config.
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

// Depth and base that are null leave their factors at 1.
absl::StatusOr<MiniCpmFactors> ReadMiniCpmFactors(const Json& json,
                                                  const DecoderConfig& config) {
  MiniCpmFactors factors;
  INLAY_ASSIGN_OR_RETURN(const double embedding,
                         JsonNumber(json, "scale_emb", 12.0, -1e6, 1e6));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> depth,
      ReadOptionalNumber(json, "scale_depth", 1.4, -1e6, 1e6));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> base,
      ReadOptionalNumber(json, "dim_model_base", 256.0, 1.0, kMaxHidden));
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
                         ReadMiniCpmFactors(json, config));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadMiniCpmLatent(json, config));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadLatentRope(json, config, latent));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.embedding_scale = factors.embedding;
  spec.logit_scale = factors.logits;
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LatentAttentionSpec attention =
        RotatedLatentAttention(config, latent, rope, prefix);
    attention.rope_style = RopeStyle::kHalf;
    LayerSpec layer =
        LlamaStyleLayer(config, prefix, NormKind::kRms, std::move(attention),
                        LlamaStyleMlp(config, prefix, mlp_bias));
    for (BlockSpec& block : layer.blocks) block.scale = factors.residual;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMiniCpm3(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MiniCpm3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
