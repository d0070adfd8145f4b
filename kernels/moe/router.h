// moe_router: what a mixture of experts does before its experts, of few tokens
// in one launch: the RMS norm, the router's product and its bias, and
// moe_routing. So rms_norm, gemm and moe_routing in one.
//
// Why: each of the three waits for the one before it and takes as long as a
// launch does, whatever the number of tokens.
#ifndef INLAY_KERNELS_MOE_ROUTER_H_
#define INLAY_KERNELS_MOE_ROUTER_H_

#include <cstdint>

#include "kernels/moe/routing.h"

namespace inlay {

inline constexpr int64_t kMostRouterTokens = 64;

struct MoeRouterDesc {
  RoutingDesc routing;
  int64_t width = 0;               // of the residual stream
  DType weight = DType::kF32;      // of the router's matrix
  DType activation = DType::kF32;  // of what is normalised
};

struct MoeRouterParams {
  // [tokens, width] f32, at most MoeRouterTokens() of them; rows lie on
  // multiples of 16 bytes, as all of these do.
  TensorView hidden;
  const float* norm = nullptr;  // [width], or null for 1, as rms_norm has it
  float epsilon = 0.0f;
  TensorView normalised;        // [tokens, width]: written
  TensorView w;                 // [num_experts, width]
  const float* bias = nullptr;  // [num_experts] or null
  // Its logits are written. No correction of softmax scores.
  RoutingParams routed;
};

using MoeRouterRow = KernelRow<MoeRouterDesc, MoeRouterParams>;

// Rows for GPUs only. What a token gives follows from its own row of hidden,
// to the bit: not from the number of tokens, nor from the other ones. Logits
// are products of what is normalised, rounded as it is stored, summed in
// float32; what is normalised may differ from what rms_norm gives by a unit in
// the last place, since squares are added in another order. With softmax scores
// logits are compared in their place: of scores that are equal as float32 the
// expert or group of the larger logit is better, not that of the lower number.
absl::Span<const MoeRouterRow> MoeRouterTable();

// How many tokens a row that serves `desc` takes: kMostRouterTokens, or fewer
// where more do not fit.
int64_t MoeRouterTokens(const MoeRouterDesc& desc);

// How many of those it should have: with more the ops apart are faster, as far
// as was measured.
int64_t MoeRouterTokensThatPay(const MoeRouterDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_ROUTER_H_
