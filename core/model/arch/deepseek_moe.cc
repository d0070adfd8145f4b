// DeepSeek MoE (arXiv:2401.06066): Llama's attention, a few dense layers, then
// experts by the softmax of all and shared ones. Source of names and defaults:
// the published configuration_deepseek.py of deepseek-moe-16b.
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Without n_routed_experts all layers are dense.
absl::StatusOr<DeepseekExperts> ReadFirstExperts(const Json& json,
                                                 int num_layers) {
  DeepseekExperts experts;
  if (JsonFind(json, "n_routed_experts") == nullptr &&
      JsonFind(json, "num_experts") == nullptr) {
    experts.sparse.assign(static_cast<size_t>(num_layers), false);
    return experts;
  }
  INLAY_RETURN_IF_ERROR(ExpectName(json, "scoring_func", "softmax"));
  DeepseekDefaults defaults;
  defaults.moe = {1, 1, 1407, false};
  defaults.num_dense = 0;
  defaults.num_shared = 0;
  INLAY_ASSIGN_OR_RETURN(experts, ReadDeepseekExperts(json, defaults));
  experts.moe.routing.score = RoutingScore::kSoftmax;
  return experts;
}

absl::StatusOr<DecoderSpec> DeepseekSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 102400;
  defaults.num_layers = 30;
  defaults.max_positions = 2048;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const DeepseekExperts experts,
                         ReadFirstExperts(json, config.num_layers));
  return LlamaDeepseekDecoder(json, config, experts);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeDeepseek(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, DeepseekSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
