// decode_mamba: what a Mamba 2 layer computes of sequences' next tokens between
// its two products, one token a sequence, in one launch: the convolution with
// its state, the gates, the recurrence with its state and its skip, the gated
// norm, the factor of the output. So short_conv, state_gates, linear_attention,
// gated_norm and elementwise in one.
//
// Why: as of decode_delta (decode_delta.h).
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_DECODE_MAMBA_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_DECODE_MAMBA_H_

#include "kernels/dispatch.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"
#include "memory/tensor.h"

namespace inlay {

// Of the same layer: heads, widths and types are the same in all.
struct DecodeMambaDesc {
  ShortConvDesc conv;  // of v, k and q of all heads, one behind the other
  StateGatesDesc gates;
  LinearAttentionDesc scan;
  // Whether y is what `norm` and the factor make of what the recurrence gives;
  // otherwise it is that.
  bool finishes = true;
  GatedNormDesc norm;
  float output_scale = 1.0f;
};

// Names are those of the ops. Rows of views begin where 16 bytes can be read.
struct DecodeMambaParams {
  TensorView x;  // [sequences, conv.channels]
  const float* taps = nullptr;
  const float* conv_bias = nullptr;  // or null: 0
  StateParams conv_state;
  TensorView dt;  // [sequences, heads], any rows
  const float* dt_bias = nullptr;
  const float* a_log = nullptr;
  const float* skip = nullptr;  // or null: 0
  StateParams state;
  TensorView z;                 // [sequences, heads * value_dim]
  const float* norm = nullptr;  // or null: 1
  float epsilon = 0.0f;
  TensorView y;  // as z; must not overlap what is read; rows of no sequence are
                 // left as they are
};

using DecodeMambaRow = KernelRow<DecodeMambaDesc, DecodeMambaParams>;
// Rows for GPUs only, with the bits of the ops apart ("cuda" of
// linear_attention). No sequence has more than one token.
absl::Span<const DecodeMambaRow> DecodeMambaTable();

// Columns of a head that a block takes where heads make a norm together.
inline int DecodeMambaSlab(const LinearAttentionDesc& scan) {
  if (scan.key_dim > 32) return scan.value_dim % 64 == 0 ? 64 : 16;
  return scan.value_dim % 32 == 0 ? 32 : 16;
}
// Blocks of a cluster, at most.
inline constexpr int64_t kDecodeMambaCluster = 16;

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_DECODE_MAMBA_H_
