// Ministral 3 (Mistral, 2025) and Mistral 4 (2026), text: Mistral, and
// DeepSeek's latent attention with experts by softmax; both with queries that
// are scaled by their position (Llama 4's temperature, counted from position
// 0). Source of names and defaults: transformers' Ministral3Config and
// Mistral4Config.
#include <utility>
#include <variant>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// `json` with the rotary embedding that the family has where it names none.
Json WithRope(Json json, double theta, double factor, int64_t original_max) {
  if (JsonFind(json, "rope_parameters") == nullptr &&
      JsonFind(json, "rope_scaling") == nullptr) {
    json["rope_parameters"] =
        Json{{"rope_type", "yarn"},
             {"rope_theta", theta},
             {"factor", factor},
             {"original_max_position_embeddings", original_max},
             {"mscale", 1.0},
             {"mscale_all_dim", 1.0},
             {"llama_4_scaling_beta", 0.1}};
  }
  return json;
}

// Adds it to `spec`; what attention's query_factor is to be, -1: none.
absl::StatusOr<int> AddTemperature(const Json& json, DecoderSpec* spec) {
  const Json* rope = JsonFind(json, "rope_parameters");
  if (rope == nullptr) rope = JsonFind(json, "rope_scaling");
  if (rope == nullptr) return -1;
  INLAY_ASSIGN_OR_RETURN(
      const double beta,
      JsonNumber(*rope, "llama_4_scaling_beta", 0.0, -1e6, 1e6));
  if (beta == 0.0) return -1;
  constexpr char kSpan[] = "original_max_position_embeddings";
  if (JsonFind(*rope, kSpan) == nullptr) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: rope parameters have llama_4_scaling_beta and no %s",
        kSpan));
  }
  RopeSpec factor = UnitFactor();
  factor.temperature = static_cast<float>(beta);
  factor.temperature_offset = 0;
  INLAY_ASSIGN_OR_RETURN(factor.temperature_span,
                         JsonInt(*rope, kSpan, 1, 1, kMaxPositions));
  spec->ropes.push_back(factor);
  return static_cast<int>(spec->ropes.size()) - 1;
}

absl::StatusOr<DecoderSpec> Ministral3Spec(const Json& published) {
  const Json json = WithRope(published, 1e6, 16.0, 16384);
  DecoderDefaults defaults;
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 14336;
  defaults.num_layers = 34;
  defaults.num_kv_heads = 8;
  defaults.head_dim = UnlessNull(json, "head_dim", 128);
  defaults.max_positions = 262144;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  INLAY_ASSIGN_OR_RETURN(const int temperature, AddTemperature(json, &spec));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    attention.window = window;
    attention.query_factor = temperature;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

// Which transformers takes for false, and not for what it is where absent.
absl::Status RefuseNull(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_null()) return absl::OkStatus();
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is null; it must be true or false", key));
}

absl::StatusOr<DecoderSpec> Mistral4Spec(const Json& published) {
  INLAY_RETURN_IF_ERROR(RefuseNull(published, "norm_topk_prob"));
  INLAY_RETURN_IF_ERROR(RefuseNull(published, "rope_interleave"));
  const Json json = WithRope(published, 1e4, 128.0, 8192);
  DecoderDefaults defaults;
  defaults.vocab_size = 131072;
  defaults.intermediate_size = 12288;
  defaults.num_layers = 36;
  defaults.head_dim = 128;  // not used: latent attention has its own
  defaults.max_positions = 1048576;
  LatentConfig latent_defaults;
  latent_defaults.query_rank = 1024;
  latent_defaults.rank = 256;
  latent_defaults.key_dim = 64;
  latent_defaults.shares_rotate = true;
  DeepseekDefaults experts_defaults;
  experts_defaults.moe = {128, 4, 2048, true};
  experts_defaults.num_dense = 0;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const LatentConfig latent,
      ReadLatentConfig(json, config.num_heads, latent_defaults));
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekExperts(json, experts_defaults));
  experts.moe.routing.score = RoutingScore::kSoftmax;
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, false));
  INLAY_ASSIGN_OR_RETURN(const int temperature, AddTemperature(json, &spec));
  for (LayerSpec& layer : spec.layers) {
    std::get<LatentAttentionSpec>(layer.blocks.front().part).query_factor =
        temperature;
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMinistral3(const Json& config,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Ministral3Spec(config));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeMistral4(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Mistral4Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
