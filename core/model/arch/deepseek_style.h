// The parts that DeepSeek's families share, and those after them that took
// these over: latent attention, and mixtures of experts in groups behind a few
// dense layers. Sits beside llama_style.h and moe_style.h.
#ifndef INLAY_CORE_MODEL_ARCH_DEEPSEEK_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_DEEPSEEK_STYLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/model/arch/moe_style.h"
#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// What a family assumes where config.json is silent.
struct DeepseekDefaults {
  MoeDefaults moe;
  int64_t num_groups = 1;
  int64_t top_groups = 1;
  double scale = 1.0;
  int64_t num_dense = 1;
  int64_t num_shared = 1;
};

struct DeepseekExperts {
  MoeConfig moe;
  int64_t num_dense = 0;     // layers, the first ones
  int64_t every = 1;         // of the others, one in so many has experts
  int64_t num_shared = 0;    // as one of that many times the width
  std::vector<bool> sparse;  // a layer each; empty: by the numbers above

  bool HasExperts(int layer) const {
    if (!sparse.empty()) return sparse[static_cast<size_t>(layer)];
    return layer >= num_dense && layer % every == 0;
  }
};

// n_group, topk_group, routed_scaling_factor, first_k_dense_replace,
// moe_layer_freq, n_shared_experts and what ReadMoeConfig reads; scores as in
// DeepSeek-V3: sigmoid, groups by their two best.
absl::StatusOr<DeepseekExperts> ReadDeepseekExperts(
    const Json& json, const DeepseekDefaults& defaults);

// The same of a family whose scores are DeepSeek-V3's and nothing else.
absl::StatusOr<DeepseekExperts> ReadDeepseekV3Experts(
    const Json& json, const DeepseekDefaults& defaults);
// What DeepSeek-V3 assumes.
DeepseekDefaults DeepseekV3Defaults();

// PREFIX.gate, PREFIX.experts.N and PREFIX.shared_experts; `corrected`: and
// PREFIX.gate.e_score_correction_bias.
MoeSpec DeepseekMoe(const DecoderConfig& config, const DeepseekExperts& experts,
                    const std::string& prefix, bool corrected,
                    const ExpertNames& names = {});

// The numbers of latent attention, the same in all layers; what DeepSeek-V2 and
// V3 assume.
struct LatentConfig {
  int64_t query_rank = 1536;  // 0: queries are made at once
  int rank = 512;
  int key_dim = 128;
  int rope_dim = 64;
  int value_dim = 128;
  // partial_rotary_factor is the rotated share of a head's whole query.
  bool shares_rotate = false;
  bool bias = false;  // of what reads the residual stream, and of the output
  double theta = 10000.0;  // of the rotary embedding
};

// q_lora_rank (none where null), kv_lora_rank, qk_*_head_dim, v_head_dim and
// attention_bias. All in range.
absl::StatusOr<LatentConfig> ReadLatentConfig(
    const Json& json, int num_heads, const LatentConfig& defaults = {});

// The rotary embedding of such layers.
absl::StatusOr<RopeSpec> ReadLatentRope(const Json& json,
                                        const DecoderConfig& config,
                                        const LatentConfig& latent);

// Tensors PREFIX.PARTq_a_proj and so on; no rope, scale 1 / sqrt(length of a
// head's query).
LatentAttentionSpec LatentStyleAttention(const DecoderConfig& config,
                                         const LatentConfig& latent,
                                         const std::string& prefix,
                                         std::string_view part = "self_attn.");

// The same with rope 0, whose scaling, of any type, raises the scale
// (mscale_all_dim).
LatentAttentionSpec RotatedLatentAttention(
    const DecoderConfig& config, const LatentConfig& latent,
    const RopeSpec& rope, const std::string& prefix,
    std::string_view part = "self_attn.");

// Layers of both parts, with rope 0. `corrected`: as DeepseekMoe has it.
absl::StatusOr<DecoderSpec> DeepseekDecoder(const Json& json,
                                            const DecoderConfig& config,
                                            const LatentConfig& latent,
                                            const DeepseekExperts& experts,
                                            bool corrected);

// Llama's layers, those that have experts with these; no corrections.
absl::StatusOr<DecoderSpec> LlamaDeepseekDecoder(
    const Json& json, const DecoderConfig& config,
    const DeepseekExperts& experts);

// UNIMPLEMENTED where the config's `key` is not `known`; null is.
absl::Status ExpectFlag(const Json& json, std::string_view key, bool known);

// UNIMPLEMENTED where the config's `key` is something else than `known`.
absl::Status ExpectName(const Json& json, std::string_view key,
                        std::string_view known);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_DEEPSEEK_STYLE_H_
