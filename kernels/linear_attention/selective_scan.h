// selective_scan: Mamba 1's recurrence (Gu and Dao, arXiv:2312.00752), with
// what its layers do right before and after it. A channel's past is a vector s
// [state_size]; for each token t of a sequence, and each channel,
//
//   step = softplus(step_t)
//   s    = exp(step rates) s + step x_t b_t
//   y_t  = (sum of s c_t + skip x_t) silu(z_t)
//
// where rates (the paper's A) are a vector a channel. b and c are all channels'
// own, steps a channel's: so heads of one channel with decays of channels,
// whose gates would be [tokens, channels, state_size] were they made apart
// (linear_attention.h).
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_SELECTIVE_SCAN_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_SELECTIVE_SCAN_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/linear_attention/state_runs.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxScanState = 128;

struct SelectiveScanDesc {
  int64_t channels = 0;
  int state_size = 0;  // 1 to kMaxScanState
  DType activation = DType::kF32;
};

// Floats of a layer's state: [state_size][channels].
inline int64_t SelectiveScanStateFloats(const SelectiveScanDesc& desc) {
  return desc.channels * desc.state_size;
}

// Rows of views may be strided.
struct SelectiveScanParams {
  TensorView x;                  // [tokens, channels]
  TensorView step;               // float32, of x's shape
  TensorView b;                  // [tokens, state_size]
  TensorView c;                  // [tokens, state_size]
  TensorView z;                  // of x's shape
  const float* rates = nullptr;  // [state_size][channels], none above 0;
                                 // 16-byte aligned
  const float* skip = nullptr;   // [channels]
  StateParams state;             // 64-byte aligned
  TensorView y;  // of x's shape; may be x or z itself; CUDA rows leave rows of
                 // no sequence as they are
};

using SelectiveScanRow = KernelRow<SelectiveScanDesc, SelectiveScanParams>;

// A token's result depends on its sequence only, bit for bit: tokens are taken
// one after another, and sums run in one order.
absl::Span<const SelectiveScanRow> SelectiveScanTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_SELECTIVE_SCAN_H_
