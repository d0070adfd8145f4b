// rg_lru: the real-gated linear recurrent unit of Griffin (De et al.,
// arXiv:2402.19427), with what its layers do right before and after it. A
// channel's past is a number h; for each token t of a sequence, and each
// channel, with s the sigmoid,
//
//   l   = rate s(recurrence_t)
//   h   = e^l h + sqrt(1 - e^(2 l)) s(input_t) x_t
//   y_t = h gelu(z_t), gelu by its tanh form
//
// A sequence's first token has no past and counts whole: h = s(input_t) x_t.
//
// Source: google-deepmind/recurrentgemma, torch/layers.py, where rate is -8
// softplus of what is learned.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_RG_LRU_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_RG_LRU_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/linear_attention/state_runs.h"
#include "memory/tensor.h"

namespace inlay {

struct RgLruDesc {
  int64_t channels = 0;
  DType activation = DType::kF32;
};

// Floats of a layer's state: [channels].
inline int64_t RgLruStateFloats(const RgLruDesc& desc) { return desc.channels; }

// Views are [tokens, channels], rows may be strided.
struct RgLruParams {
  TensorView x;
  TensorView input;  // float32, as is recurrence; both before their sigmoid
  TensorView recurrence;
  TensorView z;
  const float* rates = nullptr;  // [channels], none above 0
  StateParams state;             // 64-byte aligned
  TensorView y;  // may be x or z itself; CUDA rows leave rows of no sequence as
                 // they are
};

using RgLruRow = KernelRow<RgLruDesc, RgLruParams>;

// A token's result depends on its sequence only, bit for bit: tokens are taken
// one after another.
absl::Span<const RgLruRow> RgLruTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_RG_LRU_H_
