// The parts that decoders with mixtures of experts share: their numbers in
// config.json, and their experts' names. Sits beside llama_style.h.
#ifndef INLAY_CORE_MODEL_ARCH_MOE_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_MOE_STYLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// What a family assumes where config.json is silent.
struct MoeDefaults {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t width = 0;
  bool normalised = false;
};

struct MoeConfig {
  RoutingDesc routing;
  int64_t width = 0;  // of one expert
};

// INVALID_ARGUMENT where all layers together would have more than any model
// has: descriptions of experts take memory before a file is looked at.
absl::Status CheckNumExperts(const Json& config, int64_t experts);

// num_experts (or num_local_experts, n_routed_experts), num_experts_per_tok,
// norm_topk_prob and, as `width_key`, the experts' width; softmax scores, no
// groups. All in range, top_k at most num_experts.
absl::StatusOr<MoeConfig> ReadMoeConfig(const Json& config,
                                        std::string_view width_key,
                                        const MoeDefaults& defaults);

// What experts' matrices are called: PREFIX.N.GATE and so on.
struct ExpertNames {
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
};

// SiLU-gated experts "<prefix>experts.N."; the router "<prefix><router>".
// `bias`: of the router and of experts.
MoeSpec LlamaStyleMoe(const DecoderConfig& config, const MoeConfig& moe,
                      const std::string& prefix, std::string_view router,
                      bool bias, const ExpertNames& names = {});

// A shared expert of width `width`: gate_proj, up_proj and down_proj.
MlpSpec SharedExpert(const DecoderConfig& config, const std::string& prefix,
                     int64_t width, const ExpertNames& names = {});

// Qwen's mlp_only_layers and decoder_sparse_step: which layers have experts.
absl::StatusOr<std::vector<bool>> ReadSparseLayers(const Json& config,
                                                   int num_layers);

// mlp_layer_types: which layers have experts; all but the first `num_dense`
// where config.json is silent.
absl::StatusOr<std::vector<bool>> ReadMlpLayers(const Json& config,
                                                int num_layers, int num_dense);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_MOE_STYLE_H_
