// DeepSeek-V2, V2-Lite and V3 (arXiv:2405.04434, arXiv:2412.19437): latent
// attention and mixtures of experts. V2 scores experts by softmax and takes the
// best, of the best groups in the larger model; V3 by sigmoid, with a
// correction of the choice. Source of names and defaults: transformers'
// configuration classes. Youtu-LLM (arXiv:2512.24618): latent attention without
// experts. Sarvam 105B (Sarvam AI, 2026): DeepSeek-V3 with other names of keys.
// A.X-K1 (SK Telecom, 2026): DeepSeek-V3 with a norm of what experts give. The
// text of DeepSeek-OCR and OCR 2 (arXiv:2510.18234): V2's experts behind plain
// attention.
#include <string>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

DecoderDefaults DeepseekDecoderDefaults() {
  DecoderDefaults defaults;
  defaults.head_dim = 64;  // not used: latent attention has its own
  return defaults;
}

absl::StatusOr<DeepseekExperts> ReadDeepseekV2Experts(const Json& json) {
  DeepseekDefaults defaults;
  defaults.moe = {64, 6, 1407, false};
  defaults.num_dense = 0;
  defaults.num_shared = 2;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekExperts(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "softmax"));
  RoutingDesc& routing = experts.moe.routing;
  routing.score = RoutingScore::kSoftmax;
  routing.group_score = GroupScore::kMax;
  INLAY_ASSIGN_OR_RETURN(const std::string method,
                         JsonString(json, "topk_method", "greedy"));
  if (method == "greedy") {
    routing.num_groups = routing.top_groups = 1;
  } else {
    INLAY_RETURN_IF_ERROR(
        ExpectName(json, "topk_method", "group_limited_greedy"));
  }
  // The published code normalises instead of scaling; transformers never
  // normalises, and no published model asks for it.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "norm_topk_prob", false));
  return experts;
}

// DeepSeek-V3's keys for Sarvam's. "deepseek_yarn" is YaRN; queries are not
// compressed where nothing is said.
Json SarvamInDeepseeksKeys(const Json& own) {
  Json json = WithUsualNames(own, {{"num_experts", "n_routed_experts"},
                                   {"num_shared_experts", "n_shared_experts"}});
  if (!json.contains("q_lora_rank")) json["q_lora_rank"] = nullptr;
  const auto scaling = json.find("rope_scaling");
  if (scaling == json.end() || !scaling->is_object()) return json;
  for (const char* key : {"type", "rope_type"}) {
    const auto type = scaling->find(key);
    if (type != scaling->end() && *type == "deepseek_yarn") *type = "yarn";
  }
  return json;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDeepseekV2(const Json& json,
                                                      ModelBuild& build) {
  DecoderDefaults defaults = DeepseekDecoderDefaults();
  defaults.vocab_size = 102400;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "rope_interleave", true));
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekV2Experts(json));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, false));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeDeepseekV3(const Json& json,
                                                      ModelBuild& build) {
  DecoderDefaults defaults = DeepseekDecoderDefaults();
  defaults.vocab_size = 129280;
  defaults.hidden_size = 7168;
  defaults.intermediate_size = 18432;
  defaults.num_layers = 61;
  defaults.num_heads = 128;
  defaults.max_positions = 4096;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, DeepseekV3Defaults()));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeSarvamMla(const Json& own,
                                                     ModelBuild& build) {
  const Json json = SarvamInDeepseeksKeys(own);
  DecoderDefaults defaults = DeepseekDecoderDefaults();
  defaults.vocab_size = 262144;
  defaults.intermediate_size = 16384;
  defaults.num_heads = 64;
  defaults.max_positions = 4096;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  DeepseekDefaults mixture;
  mixture.moe = {128, 8, 2048, true};
  mixture.scale = 2.5;
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, mixture));
  // Of published files; transformers does not read it.
  INLAY_RETURN_IF_ERROR(ExpectName(json, "score_function", "sigmoid"));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeYoutu(const Json& json,
                                                 ModelBuild& build) {
  DecoderDefaults defaults = DeepseekDecoderDefaults();
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.num_heads = 16;
  defaults.max_positions = 131072;
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "mlp_bias", false));
  Json dense = json;
  dense["first_k_dense_replace"] = config.num_layers;
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadDeepseekV3Experts(dense, DeepseekV3Defaults()));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeAxK1(const Json& json,
                                                ModelBuild& build) {
  DecoderDefaults defaults = DeepseekDecoderDefaults();
  defaults.vocab_size = 163840;
  defaults.hidden_size = 7168;
  defaults.intermediate_size = 18432;
  defaults.num_layers = 61;
  defaults.num_heads = 64;
  defaults.num_kv_heads = UnlessNull(json, "num_key_value_heads", 64);
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  DeepseekDefaults mixture = DeepseekV3Defaults();
  mixture.moe.num_experts = 192;
  mixture.num_dense = 1;
  // As in transformers, topk_method is not read: the choice is one.
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "sigmoid"));
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekExperts(json, mixture));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse, ReadLayerKinds(json, "mlp_layer_types", config.num_layers,
                                     "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(const LatentConfig latent,
                         ReadLatentConfig(json, config.num_heads));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  for (int i = 0; i < config.num_layers; ++i) {
    BlockSpec& block = spec.layers[static_cast<size_t>(i)].blocks[1];
    auto* moe = std::get_if<MoeSpec>(&block.part);
    if (moe == nullptr) continue;
    block.post_norm = {NormKind::kRms, LayerPrefix(i) + "post_mlp_layernorm",
                       config.norm_epsilon};
    // Published files choose without one.
    if (!build.weights.Has(moe->correction)) moe->correction.clear();
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeDeepseekOcr(const Json& own,
                                                       ModelBuild& build) {
  Json json = own;
  json.erase("head_dim");  // it follows from the width, whatever is said
  DecoderDefaults defaults;
  defaults.vocab_size = 102400;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  for (const char* key : {"mlp_bias", "use_mla"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, false));
  }
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts, ReadDeepseekV2Experts(json));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse, ReadLayerKinds(json, "mlp_layer_types", config.num_layers,
                                     "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         LlamaDeepseekDecoder(json, config, experts));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
