// short_conv: causal convolution of each channel over its last few tokens, as
// Mamba, DeltaNet and LFM2 put it before their recurrence:
//
//   y_t = g_t f(bias + sum_j taps[j] x_(t - num_taps + 1 + j) i_...)
//
// with gates i of the input and g of the output where there are any (LFM2).
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_SHORT_CONV_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_SHORT_CONV_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/linear_attention/state_runs.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxConvTaps = 8;

struct ShortConvDesc {
  int64_t channels = 0;
  int num_taps = 0;   // 2 to kMaxConvTaps
  bool silu = false;  // f; otherwise the identity
  DType activation = DType::kF32;
};

// Floats of a layer's state: [num_taps - 1][channels], the inputs of the tokens
// before, the oldest first, gated.
inline int64_t ShortConvStateFloats(const ShortConvDesc& desc) {
  return (desc.num_taps - 1) * desc.channels;
}

// Views are [tokens, channels], rows may be strided.
struct ShortConvParams {
  TensorView x;
  TensorView input_gate;        // empty: none
  TensorView output_gate;       // empty: none
  const float* taps = nullptr;  // [num_taps][channels], the oldest first
  const float* bias = nullptr;  // [channels], or null: 0
  StateParams state;            // 64-byte aligned
  // May be the output gate itself; must not overlap x and the input gate. CUDA
  // rows leave rows of no sequence as they are.
  TensorView y;
};

using ShortConvRow = KernelRow<ShortConvDesc, ShortConvParams>;
absl::Span<const ShortConvRow> ShortConvTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_SHORT_CONV_H_
