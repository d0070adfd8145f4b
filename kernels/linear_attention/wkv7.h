// wkv7: RWKV-7's recurrence ("Goose"; Peng et al., arXiv:2503.14456) with what
// its layers do, head by head, right before and after it. A head's past is a
// matrix S [keys, values]; for each token t of a sequence, with s the sigmoid,
//
//   w  = exp(-e^(-1/2) s(decay_t))
//   a  = s(rate_t)
//   kk = k_t k_scale, brought to length 1
//   k  = k_t (1 + (a - 1) k_rate)
//   v  = v_t + (first_v_t - v_t) s(mix_t)      or v_t itself
//   S  = diag(w) S - (kk a) (S^T kk)^T + k v^T (S^T kk of S before the token)
//   o  = norm(S^T r_t) norm_weight + norm_bias (mean 0, variance 1 a head)
//   y_t = (o + (sum of r_t k bonus) v) g_t
//
// Source: BlinkDL/RWKV-LM, RWKV-v7/rwkv_v7_demo.py and rwkv_v7_numpy.py. There
// S is the transpose, values by keys.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_WKV7_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_WKV7_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/linear_attention/state_runs.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxWkvHeadDim = 128;

// e^(-1/2), what decays are at least the exponential of the negative of.
inline constexpr double kWkvDecay = 0.60653065971263342;
// Below which no length is divided by.
inline constexpr float kWkvLeastLength = 1e-12f;

struct Wkv7Desc {
  int num_heads = 0;
  int head_dim = 0;    // 16, 32, 64 or 128; of keys and values
  bool mixes = false;  // v with first_v
  DType activation = DType::kF32;
};

constexpr bool IsWkvHeadDim(int64_t dim) {
  return dim == 16 || dim == 32 || dim == 64 || dim == 128;
}

// Floats of a layer's state: [num_heads][keys][values].
inline int64_t Wkv7StateFloats(const Wkv7Desc& desc) {
  return int64_t{desc.num_heads} * desc.head_dim * desc.head_dim;
}

// Views are [tokens, num_heads * head_dim], rows may be strided; vectors
// [num_heads * head_dim].
struct Wkv7Params {
  TensorView r;
  TensorView k;
  TensorView v;
  TensorView g;
  TensorView decay;  // float32, as are rate and mix
  TensorView rate;
  TensorView first_v;  // with mix, where desc.mixes; not read otherwise
  TensorView mix;
  const float* k_scale = nullptr;
  const float* k_rate = nullptr;
  const float* bonus = nullptr;
  const float* norm_weight = nullptr;
  const float* norm_bias = nullptr;
  float epsilon = 0.0f;  // of the norm, beside the variance
  StateParams state;     // 64-byte aligned
  TensorView y;          // may be r, k, v or g itself; CUDA rows leave rows of
                         // no sequence as they are
};

using Wkv7Row = KernelRow<Wkv7Desc, Wkv7Params>;

// A token's result depends on its sequence only, bit for bit: tokens are taken
// one after another, and sums run in one order.
absl::Span<const Wkv7Row> Wkv7Table();

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_WKV7_H_
