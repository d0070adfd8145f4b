// Phi-3.5-MoE, Phi-mini-MoE and Phi-tiny-MoE (arXiv:2404.14219, 2506.18349):
// Mixtral's experts, two a token, chosen and weighed by SparseMixer (GRIN,
// arXiv:2409.12136); LayerNorms and biases.
#include <string>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// LongRoPE's factor of cosines and sines has two keys here, of short and of
// long sequences, which are equal in published files.
absl::StatusOr<RopeSpec> ReadPhimoeRope(const Json& json,
                                        const DecoderConfig& config) {
  INLAY_ASSIGN_OR_RETURN(RopeSpec rope, ReadRope(json, config, {.theta = 1e6}));
  if (rope.scaling == RopeScaling::kNone) return rope;
  if (rope.scaling != RopeScaling::kLongRope) {
    return absl::UnimplementedError(
        "config.json: the rope type is another than default and longrope, "
        "which are supported here");
  }
  const Json* object = JsonFind(json, "rope_parameters");
  if (object == nullptr) object = JsonFind(json, "rope_scaling");
  const char* const kKeys[] = {"short_mscale", "long_mscale"};
  double scales[2];
  for (int i = 0; i < 2; ++i) {
    // GGUF files have attention_factor instead of both.
    if (JsonFind(*object, kKeys[0]) == nullptr &&
        JsonFind(*object, kKeys[1]) == nullptr) {
      return rope;
    }
    INLAY_ASSIGN_OR_RETURN(scales[i],
                           JsonNumber(*object, kKeys[i], 0.0, 1e-6, 1e6));
  }
  if (scales[0] != scales[1]) {
    return absl::UnimplementedError(
        FormattedString("config.json: long_mscale is %g and short_mscale %g; "
                        "supported here are equal ones",
                        scales[1], scales[0]));
  }
  rope.attention_factor = scales[0];
  return rope;
}

absl::StatusOr<MoeConfig> ReadPhimoeExperts(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {16, 2, 6400, false}));
  if (moe.routing.top_k != 2) {
    return absl::UnimplementedError(FormattedString(
        "config.json: num_experts_per_tok is %d; supported here is 2",
        moe.routing.top_k));
  }
  INLAY_ASSIGN_OR_RETURN(
      const double jitter,
      JsonNumber(json, "router_jitter_noise", 0.01, 0.0, 1e6));
  moe.routing.normalised = false;  // whatever norm_topk_prob says
  moe.routing.score = RoutingScore::kSparseMixer;
  moe.routing.threshold = static_cast<float>(2 * jitter);
  return moe;
}

absl::StatusOr<DecoderSpec> PhimoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 32064;
  defaults.intermediate_size = 6400;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const MoeConfig moe, ReadPhimoeExperts(json));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadPhimoeRope(json, config));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayer);
  INLAY_ASSIGN_OR_RETURN(spec.head_bias, JsonBool(json, "lm_head_bias", false));
  if (spec.head_bias && config.tie_embeddings) {
    return absl::UnimplementedError(
        "config.json: lm_head_bias is true with tie_word_embeddings; supported "
        "here is one of them");
  }
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = window;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kLayer, attention,
                        LlamaStyleMoe(config, moe, prefix + "block_sparse_moe.",
                                      "gate", false, {"w1", "w3", "w2"})));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakePhimoe(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, PhimoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
