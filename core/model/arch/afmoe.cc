// AFMoE (Arcee's Trinity Nano, Mini and Large): experts chosen by sigmoid
// scores with a correction and a shared one, after some dense layers; gates of
// what attention gives, norms of q and k, norms on both sides of each part;
// windows on three layers of four, and rope on these alone.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct AfmoeExperts {
  MoeConfig moe;
  int64_t num_dense = 0;
  int64_t num_shared = 0;
};

absl::StatusOr<AfmoeExperts> ReadAfmoeExperts(const Json& json) {
  AfmoeExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {64, 6, 1408, true}));
  RoutingDesc& routing = experts.moe.routing;
  routing.score = RoutingScore::kSigmoid;
  routing.normalised = true;  // whatever norm_topk_prob says
  INLAY_ASSIGN_OR_RETURN(const double scale,
                         JsonNumber(json, "route_scale", 1.0, 1e-6, 1e6));
  routing.scale = static_cast<float>(scale);
  INLAY_ASSIGN_OR_RETURN(experts.num_dense,
                         JsonInt(json, "num_dense_layers", 1, 0, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(experts.num_shared,
                         JsonInt(json, "num_shared_experts", 2, 0, 64));
  // Keys of published files that change nothing in transformers.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "route_norm", true));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "score_func", "sigmoid"));
  for (const char* key : {"num_expert_groups", "n_group"}) {
    INLAY_ASSIGN_OR_RETURN(const int64_t groups,
                           JsonInt(json, key, 1, 1, kMaxExperts));
    if (groups == 1) continue;
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is %d; supported here is 1", key, groups));
  }
  return experts;
}

MoeSpec AfmoeMoe(const DecoderConfig& config, const AfmoeExperts& experts,
                 const std::string& prefix) {
  MoeSpec spec =
      LlamaStyleMoe(config, experts.moe, prefix, "router.gate", false);
  spec.correction = prefix + "expert_bias";
  if (experts.num_shared > 0) {
    spec.shared = SharedExpert(config, prefix + "shared_experts.",
                               experts.num_shared * experts.moe.width);
  }
  return spec;
}

// Its gate is the second layer.
AttentionSpec AfmoeAttention(const DecoderConfig& config,
                             const std::string& prefix, bool bias) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  AddHeadNorms(config, prefix, NormKind::kRms, &attention);
  attention.gated = attention.gate_apart = true;
  LinearSpec gate = attention.qkv.front();
  gate.name = prefix + "self_attn.gate_proj";
  gate.bias = false;
  attention.qkv.insert(attention.qkv.begin() + 1, std::move(gate));
  return attention;
}

absl::StatusOr<std::vector<bool>> ReadAfmoeSliding(const Json& json,
                                                   int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!sliding.empty()) return sliding;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t every,
      JsonInt(json, "global_attn_every_n_layers", 4, 1, kMaxLayers));
  for (int i = 0; i < num_layers; ++i) sliding.push_back((i + 1) % every != 0);
  return sliding;
}

absl::StatusOr<DecoderSpec> AfmoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 200192;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.num_heads = 16;
  defaults.head_dim = 128;
  defaults.max_positions = 16384;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const AfmoeExperts experts, ReadAfmoeExperts(json));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool scales_embeddings,
                         JsonBool(json, "mup_enabled", false));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 1024));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadAfmoeSliding(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  if (scales_embeddings) {
    spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  }
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const bool slides = sliding[static_cast<size_t>(i)];
    AttentionSpec attention = AfmoeAttention(config, prefix, bias);
    attention.window = slides ? window : 0;
    attention.rope = slides ? 0 : -1;
    PartSpec mlp = LlamaStyleMlp(config, prefix, false);
    if (i >= experts.num_dense)
      mlp = AfmoeMoe(config, experts, prefix + "mlp.");
    LayerSpec layer = LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                                      std::move(mlp));
    layer.blocks[0].post_norm = {NormKind::kRms,
                                 prefix + "post_attention_layernorm",
                                 config.norm_epsilon};
    layer.blocks[1].pre_norm.name = prefix + "pre_mlp_layernorm";
    layer.blocks[1].post_norm = {NormKind::kRms, prefix + "post_mlp_layernorm",
                                 config.norm_epsilon};
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeAfmoe(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, AfmoeSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
