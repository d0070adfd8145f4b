// disentangled_attention: attention whose scores have, beside the product of
// query and key, those of either with a row that stands for how far one is from
// the other (DeBERTa: He et al., arXiv:2006.03654, section 3.1). An op of its
// own, so that attention's kernels need not know.
#ifndef INLAY_KERNELS_ATTENTION_DISENTANGLED_ATTENTION_H_
#define INLAY_KERNELS_ATTENTION_DISENTANGLED_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

// The score of the query at p and the key at k, before scale and softcap, is
//   q . key + q . keys[r] + key . queries[r],   r = rows[reach + d],
// d being p - k or, where that is further than `reach`, the last on its side;
// rows of `keys` and `queries` have all heads side by side. All on the device.
struct RelativeRows {
  // [num_rows, num_heads * head_dim] of AttentionDesc::activation, rows may be
  // strided, on CUDA by multiples of 16 bytes; one of them may be empty, and
  // its product is left out.
  TensorView keys;
  TensorView queries;
  const int32_t* rows = nullptr;  // [2 * reach + 1], each in [0, num_rows)
  int reach = 0;                  // >= 0
};

struct DisentangledAttentionParams {
  // Without ALiBi, selected keys and values in keys' rows; every head has keys
  // of its own. `plan`: of a shape that MakeDisentangledAttentionPlanShape()
  // made.
  AttentionParams attention;
  RelativeRows relative;
};

using DisentangledAttentionRow =
    KernelRow<AttentionDesc, DisentangledAttentionParams>;

// A query's result depends only on its own position and its sequence's keys, as
// attention's.
absl::Span<const DisentangledAttentionRow> DisentangledAttentionTable();

absl::Status ValidateDisentangledAttention(
    const AttentionDesc& desc, const DisentangledAttentionParams& params);

// How work is cut for a CUDA row that serves `desc`. Everything becomes items.
AttentionPlanShape MakeDisentangledAttentionPlanShape(
    const DisentangledAttentionRow& row, const AttentionDesc& desc,
    int block_size, int num_sms);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_DISENTANGLED_ATTENTION_H_
