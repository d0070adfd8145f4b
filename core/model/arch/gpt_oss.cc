// gpt-oss (arXiv:2508.10925): windows on every other layer, a sink beside the
// keys of each head, experts with biases and a clamped gate, YaRN.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults GptOssDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 201088;
  defaults.hidden_size = 2880;
  defaults.intermediate_size = 2880;
  defaults.num_layers = 36;
  defaults.num_heads = 64;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 64;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  return defaults;
}

// What the family's configuration says where config.json has no scaling.
Json WithGptOssRope(const Json& json) {
  if (JsonFind(json, "rope_parameters") != nullptr ||
      JsonFind(json, "rope_scaling") != nullptr) {
    return json;
  }
  Json scaled = json;
  scaled["rope_parameters"] = {{"rope_type", "yarn"},
                               {"factor", 32.0},
                               {"truncate", false},
                               {"original_max_position_embeddings", 4096}};
  return scaled;
}

absl::Status CheckAlpha(const Json& json) {
  constexpr double kAlpha = 1.702;  // Activation::kClampedSilu's
  INLAY_ASSIGN_OR_RETURN(const double alpha,
                         JsonNumber(json, "swiglu_alpha", kAlpha, -1e6, 1e6));
  if (alpha == kAlpha) return absl::OkStatus();
  return absl::UnimplementedError(FormattedString(
      "config.json: swiglu_alpha is %g; supported here is %g", alpha, kAlpha));
}

absl::StatusOr<DecoderSpec> GptOssSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(json, GptOssDefaults()));
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {128, 4, 2880, true}));
  moe.routing.normalised = true;
  INLAY_RETURN_IF_ERROR(CheckAlpha(json));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", true));
  INLAY_ASSIGN_OR_RETURN(const double limit,
                         JsonNumber(json, "swiglu_limit", 7.0, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 128));
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, config.num_layers));
  for (int i = 0; sliding.size() < static_cast<size_t>(config.num_layers);
       ++i) {
    sliding.push_back(i % 2 == 0);
  }
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec rope,
      ReadRope(WithGptOssRope(json), config, {.theta = 150000.0}));
  // hidden_act says "silu"; the network has its own.
  config.activation = Activation::kClampedSilu;
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = sliding[static_cast<size_t>(i)] ? window : 0;
    attention.sinks = prefix + "self_attn.sinks";
    MoeSpec experts =
        LlamaStyleMoe(config, moe, prefix + "mlp.", "router", true);
    for (MlpSpec& expert : experts.experts) {
      expert.limit = static_cast<float>(limit);
    }
    spec.layers.push_back(LlamaStyleLayer(config, prefix, NormKind::kRms,
                                          attention, std::move(experts)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGptOss(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GptOssSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
