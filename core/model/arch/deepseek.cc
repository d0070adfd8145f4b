// DeepSeek-V2, V2-Lite and V3 (arXiv:2405.04434, arXiv:2412.19437): latent
// attention and mixtures of experts. V2 scores experts by softmax and takes the
// best, of the best groups in the larger model; V3 by sigmoid, with a
// correction of the choice. Source of names and defaults: transformers'
// configuration classes. Youtu-LLM (arXiv:2512.24618): latent attention without
// experts.
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
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

}  // namespace inlay
