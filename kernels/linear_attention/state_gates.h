// state_gates: how far a recurrent layer's state decays at each token, and how
// much of the token goes into it.
//
//   step  = clamp(softplus(x_scale x + bias), least, most)
//   decay = exp(-exp(a_log) step)
//   beta  = sigmoid(b), or step where there is no b
//
// or, where decays have a bound,
//
//   decay = exp(bound sigmoid(exp(a_log) (x_scale x + bias)))
//
// Mamba 2's discretisation (arXiv:2405.21060), gated DeltaNet's (2412.06464)
// and Kimi delta attention's gates (2510.26692; a channel at a time; bounded
// ones: Ling 3).
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_STATE_GATES_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_STATE_GATES_H_

#include <cstdint>
#include <limits>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct StateGatesDesc {
  int64_t num_heads = 0;
  int64_t channels = 1;  // of x and decay, a head
  float x_scale = 1.0f;
  float least = 0.0f;
  float most = std::numeric_limits<float>::infinity();
  float bound = 0.0f;  // < 0: of decays' logarithms; then there is b
  DType activation = DType::kF32;
};

// Rows of views may be strided. decay and beta are float32.
struct StateGatesParams {
  TensorView x;                  // [tokens, num_heads * channels]
  const float* bias = nullptr;   // [num_heads * channels]
  const float* a_log = nullptr;  // [num_heads]
  TensorView b;                  // [tokens, num_heads]; empty: beta is the step
  TensorView decay;  // of x's shape; may be x itself where that is float32
  TensorView beta;   // [tokens, num_heads], may be b itself where that is
                     // float32; with no b, channels must be 1
};

using StateGatesRow = KernelRow<StateGatesDesc, StateGatesParams>;
absl::Span<const StateGatesRow> StateGatesTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_STATE_GATES_H_
