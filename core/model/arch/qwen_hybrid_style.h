// What the Qwen families with gated DeltaNet layers share: which layers attend,
// linear attention's sizes, gated attention, experts beside a shared one. Norms
// are zero-centred but the gated one. Source of names: transformers'
// configurations of qwen3_next and qwen3_5.
#ifndef INLAY_CORE_MODEL_ARCH_QWEN_HYBRID_STYLE_H_
#define INLAY_CORE_MODEL_ARCH_QWEN_HYBRID_STYLE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder_spec.h"
#include "core/model/hf_config.h"

namespace inlay {

// What a family has of its own.
struct QwenHybridParts {
  // Sets qkvz and ba with their orders: of the layer whose linear attention's
  // tensors begin with `name`. `delta` has its sizes.
  std::function<void(const std::string& name, DeltaSpec* delta)> projections;
  // `prefix`: of the layer's tensors.
  std::function<PartSpec(int layer, const std::string& prefix)> feed_forward;
};

// layer_types, or every full_attention_interval-th layer attends; linear_*;
// attention_bias; rope, by default of a quarter of each head.
absl::StatusOr<DecoderSpec> QwenHybridSpec(const Json& json,
                                           const DecoderConfig& config,
                                           const QwenHybridParts& parts);

// linear_*: the sizes of linear attention, no names. With as many heads where
// config.json is silent.
absl::StatusOr<DeltaSpec> ReadQwenDeltaSizes(const Json& json,
                                             int64_t key_heads, int64_t heads);

// Tensors NAME.conv1d, .A_log, .dt_bias, .norm and .out_proj of it.
void NameQwenDelta(const DecoderConfig& config, const std::string& name,
                   DeltaSpec* delta);

// NAME.in_proj_qkv, _z, _b and _a: Qwen 3.5's inputs of it.
void NameQwenDeltaInputs(const DecoderConfig& config, const std::string& name,
                         DeltaSpec* delta);

struct QwenExperts {
  MoeConfig moe;
  int64_t shared_width = 0;
};

// moe_intermediate_size, shared_expert_intermediate_size and the numbers of
// ReadMoeConfig.
absl::StatusOr<QwenExperts> ReadQwenExperts(const Json& json,
                                            const MoeDefaults& defaults);

// Experts and a shared one with a gate: PREFIX.mlp.
MoeSpec QwenExpertsPart(const DecoderConfig& config, const QwenExperts& experts,
                        const std::string& prefix);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_ARCH_QWEN_HYBRID_STYLE_H_
