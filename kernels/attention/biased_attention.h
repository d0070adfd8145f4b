// biased_attention: attention whose scores grow by a number of each head and of
// how far the key is from the query (relative position biases, T5's:
// arXiv:1910.10683, section 2.1; MPNet's: arXiv:2004.09297). An op of its own,
// so that attention's kernels need not know.
#ifndef INLAY_KERNELS_ATTENTION_BIASED_ATTENTION_H_
#define INLAY_KERNELS_ATTENTION_BIASED_ATTENTION_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/dispatch.h"

namespace inlay {

// What a score grows by, after scale and softcap: values[head * (2 * reach + 1)
// + reach + d] for the query at p and the key at k, d being k - p or, where
// that is further than `reach`, the last on its side. On the device.
struct ScoreBias {
  const float* values = nullptr;  // [num_heads, 2 * reach + 1]
  int reach = 0;                  // 0 <= reach <= kMaxBiasReach
};

// More than the models that are known tell apart.
inline constexpr int kMaxBiasReach = 1023;

struct BiasedAttentionParams {
  // Without ALiBi and selected keys. `plan`: of a shape that
  // MakeBiasedAttentionPlanShape() made.
  AttentionParams attention;
  ScoreBias bias;
};

using BiasedAttentionRow = KernelRow<AttentionDesc, BiasedAttentionParams>;

// A query's result depends only on its own position and its sequence's keys, as
// attention's.
absl::Span<const BiasedAttentionRow> BiasedAttentionTable();

absl::Status ValidateBiasedAttention(const AttentionDesc& desc,
                                     const BiasedAttentionParams& params);

// How work is cut for a CUDA row that serves `desc`. Everything becomes items.
AttentionPlanShape MakeBiasedAttentionPlanShape(const BiasedAttentionRow& row,
                                                const AttentionDesc& desc,
                                                int block_size, int num_sms);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_BIASED_ATTENTION_H_
