// decode_delta: what a DeltaNet or Kimi layer computes of sequences' next
// tokens between its two products, in one launch: the convolution with its
// state, q and k brought to their lengths, the gates, the gated delta rule with
// its state, the gated norm. So short_conv, gated_norm, state_gates,
// linear_attention and gated_norm in one.
//
// Why: at batch 1 each launch costs as much as what it does. States are on
// their way before what the products give is there.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_H_

#include "kernels/dispatch.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/linear_attention/short_conv.h"
#include "kernels/linear_attention/state_gates.h"
#include "memory/tensor.h"

namespace inlay {

// Of the same layer: heads, widths and types are the same in all.
struct DecodeDeltaDesc {
  ShortConvDesc conv;  // of q, k and v of all heads, one behind the other
  GatedNormDesc unit;  // of q and k
  StateGatesDesc gates;
  LinearAttentionDesc rule;
  GatedNormDesc norm;
};

// Names are those of the ops. Rows of views begin where 16 bytes can be read.
struct DecodeDeltaParams {
  TensorView x;  // [tokens, conv.channels]
  const float* taps = nullptr;
  StateParams conv_state;
  const float* lengths = nullptr;  // the weight of `unit`
  float length_epsilon = 0.0f;
  TensorView a;  // [tokens, gates.num_heads * gates.channels], any rows
  TensorView b;  // [tokens, gates.num_heads], any rows
  const float* bias = nullptr;
  const float* a_log = nullptr;
  StateParams state;
  TensorView z;  // [tokens, heads * value_dim]
  const float* norm = nullptr;
  float norm_epsilon = 0.0f;
  TensorView y;  // as z; must not overlap what is read; rows of no sequence are
                 // left as they are
};

using DecodeDeltaRow = KernelRow<DecodeDeltaDesc, DecodeDeltaParams>;
// Rows for GPUs only, with the bits of the ops apart ("cuda" of
// linear_attention), for any number of tokens a sequence.
absl::Span<const DecodeDeltaRow> DecodeDeltaTable();

// Tokens of the sequence that has most up to which this takes less time than
// the ops apart: a sequence's tokens follow one another here.
inline constexpr int64_t kDecodeDeltaTokens = 4;

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_H_
