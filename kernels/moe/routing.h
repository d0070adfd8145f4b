// moe_routing: which experts a token goes to and how much each counts, from the
// router's scores, and which (token, expert) pairs, called slots, each expert
// has. Slot t * top_k + r is token t's expert of rank r.
// Sources: Shazeer et al., arXiv:1701.06538 (top-k of a softmax); DeepSeek-V2,
// arXiv:2405.04434 (groups of experts); DeepSeek-V3, arXiv:2412.19437 (sigmoid
// scores, correction of the choice); Roller et al., arXiv:2106.04426 (hash
// layers: the token's id chooses); GRIN, arXiv:2409.12136 (SparseMixer).
#ifndef INLAY_KERNELS_MOE_ROUTING_H_
#define INLAY_KERNELS_MOE_ROUTING_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerToken = 64;

// kSqrtSoftplus: sqrt(log(1 + e^x)) (DeepSeek-V4). kSparseMixer (Phi-3.5-MoE):
// experts are chosen by their logits one after another, and each weighs what it
// has of the softmax over those that are left, without those far behind it:
// where (its logit - x) / max(|x|, its logit) > RoutingDesc::threshold, in
// float32. kLogitSigmoid (Kolibri 1): weights are sigmoids of logits, but the
// choice, with its correction and its groups, is by the logits themselves.
enum class RoutingScore : uint8_t {
  kSoftmax,
  kSigmoid,
  kSqrtSoftplus,
  kSparseMixer,
  kLogitSigmoid
};

// What a group of experts is judged by: its best score, or its two best added.
enum class GroupScore : uint8_t { kMax, kTopTwo };

struct RoutingDesc {
  int num_experts = 0;
  int top_k = 0;
  RoutingScore score = RoutingScore::kSoftmax;
  // Weights of a token add up to `scale`. With softmax scores: the softmax over
  // the chosen experts alone.
  bool normalised = false;
  // Experts lie in so many groups of equal size, one after another; only those
  // of the best `top_groups` groups are chosen from.
  int num_groups = 1;
  int top_groups = 1;
  GroupScore group_score = GroupScore::kMax;
  float scale = 1.0f;  // multiplies the weights
  // RoutingParams::expert_scales are given (Gemma 4).
  bool scales_experts = false;
  // The token's row of RoutingParams::table is its experts, in the table's
  // order; scores weigh them, and choose nothing.
  bool hashed = false;
  // Of kSparseMixer, which has no groups, no correction, no table and no scales
  // of experts, and whose weights are not normalised.
  float threshold = 0.0f;

  bool operator==(const RoutingDesc&) const = default;
};

struct RoutingParams {
  TensorView logits;  // [tokens, num_experts] f32, rows may be strided
  // [num_experts]: added to the scores for the choice (of groups and of
  // experts), not for the weights; or null.
  const float* correction = nullptr;
  int32_t* experts = nullptr;  // [tokens, top_k], best first
  float* weights = nullptr;    // [tokens, top_k]
  // Slots by expert: those of expert e are slots[offsets[e] .. offsets[e + 1]),
  // ascending. [num_experts + 1] and [tokens * top_k].
  int32_t* offsets = nullptr;
  int32_t* slots = nullptr;
  // [num_experts]: multiply the weights last, where desc.scales_experts.
  const float* expert_scales = nullptr;
  // Where desc.hashed: [tokens] rows of table, [.., top_k] experts in range.
  const int32_t* ids = nullptr;
  const int32_t* table = nullptr;
};

using RoutingRow = KernelRow<RoutingDesc, RoutingParams>;

// A token's experts and weights depend on its own logits (and id) only. Scores
// are compared as float32, rounded from float64; of equal ones the expert of
// lower number is better. A NaN is better than anything: it shows in the
// weights. Every expert number is in range whatever the logits.
absl::Span<const RoutingRow> RoutingTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateRouting(const RoutingDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTING_H_
