// decode_attention: what a decoder computes of few sequences' next tokens
// between the projections of q, k and v and the output projection, in one
// launch: RMS norms of heads, rotary positions, the new keys and values into
// the paged cache, attention over it. So rope_kv and attention in one.
//
// Why: at batch 1 each launch costs as much as what it does. Keys and values of
// earlier steps are on their way while the new ones are made.
#ifndef INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_H_
#define INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_H_

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/dispatch.h"
#include "kernels/rope_kv/rope_kv.h"

namespace inlay {

// Of the same layer: heads, types and cache are the same in both.
struct DecodeAttentionDesc {
  RopeKvDesc rope_kv;
  AttentionDesc attention;
};

struct DecodeAttentionParams {
  // qkv is left as it was. A row is a sequence's next token.
  RopeKvParams rope_kv;
  TensorView out;                // [tokens, num_heads * head_dim]
  const float* sinks = nullptr;  // as AttentionParams has them
  // For the layer's sequences; one that AttentionPlan::few allows.
  const AttentionPlan* plan = nullptr;
};

using DecodeAttentionRow =
    KernelRow<DecodeAttentionDesc, DecodeAttentionParams>;
// Rows for GPUs only. The cache gets the bits that rope_kv gives it. Keys are
// cut and summed in an order of this op's own, which follows from the
// sequence's length and which of DecodeAttentionLimits' steps this is.
absl::Span<const DecodeAttentionRow> DecodeAttentionTable();

// AttentionPlanShape::few of the layer: tokens of a step that find room side by
// side, and as many keys as this takes less time for than attention's items,
// which take all multiprocessors whatever there is.
using DecodeAttentionSteps = decltype(AttentionPlanShape::few);
DecodeAttentionSteps DecodeAttentionLimits(const DecodeAttentionDesc& desc,
                                           const DeviceInfo& device);

}  // namespace inlay

#endif  // INLAY_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_H_
