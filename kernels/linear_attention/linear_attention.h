// linear_attention: attention whose past is a matrix S [key_dim, value_dim] a
// head instead of a cache of keys. For each token t of a sequence
//
//   S = diag(decay_t) S
//   u = beta_t v_t                    or, by the delta rule,
//   u = beta_t (v_t - S^T k_t)
//   S = S + k_t u^T
//   y_t = S^T q_t + skip v_t
//
// where q and k are what a feature map makes of them, element by element. With
// a normaliser z [key_dim], the column that S would have of values that are
// always 1,
//
//   z = diag(decay_t) z + beta_t k_t
//   y_t = (S^T q_t) / (z^T q_t + epsilon) + skip v_t
//
// Plain linear attention: neither decay nor beta, a feature map and the
// normaliser (Katharopoulos et al., arXiv:2006.16236); lightning attention and
// RetNet: a decay a head (arXiv:2401.04658, arXiv:2307.08621); Mamba 2: decay
// and beta a head and token, k and q its B and C (Dao and Gu,
// arXiv:2405.21060); gated DeltaNet: the delta rule besides (arXiv:2412.06464);
// Kimi delta attention: a decay a key channel (arXiv:2510.26692).
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_
#define INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/linear_attention/state_runs.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxStateKeyDim = 256;

enum class StateDecay : uint8_t { kNone, kHead, kChannel };

// Of an element of q and k: itself; elu(x) + 1, which is x + 1 above 0 and e^x
// below; what is above 0.
enum class FeatureMap : uint8_t { kNone, kEluPlusOne, kRelu };

// Head h reads the keys and queries of head h / (num_heads / num_key_heads).
struct LinearAttentionDesc {
  int num_heads = 0;
  int num_key_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  StateDecay decay = StateDecay::kNone;
  bool delta = false;
  FeatureMap feature_map = FeatureMap::kNone;
  bool normalised = false;  // not with the delta rule
  float epsilon = 0.0f;     // of the normaliser
  DType activation = DType::kF32;
  bool batch_invariant = false;  // see LinearAttentionTable()
};

// Where a layer's state has head 0's normaliser: behind all heads' matrices
// [num_heads][key_dim][value_dim], whose rows so stay where vectors can begin.
inline int64_t LinearAttentionMatrixFloats(const LinearAttentionDesc& desc) {
  return int64_t{desc.num_heads} * desc.key_dim * desc.value_dim;
}
// Floats of a layer's state: the matrices and, normalised, z
// [num_heads][key_dim].
inline int64_t LinearAttentionStateFloats(const LinearAttentionDesc& desc) {
  return LinearAttentionMatrixFloats(desc) +
         (desc.normalised ? int64_t{desc.num_heads} * desc.key_dim : 0);
}

// Rows of views may be strided; a stride of 0 has all tokens read one row.
struct LinearAttentionParams {
  TensorView q;      // [tokens, num_key_heads * key_dim]
  TensorView k;      // the same shape
  TensorView v;      // [tokens, num_heads * value_dim]
  TensorView decay;  // float32, [tokens, num_heads] or [tokens, num_heads *
                     // key_dim]; empty for kNone
  TensorView beta;   // float32, [tokens, num_heads]; empty: 1
  const float* skip = nullptr;  // [num_heads], or null: 0
  StateParams state;            // 64-byte aligned
  void* workspace = nullptr;    // 16-byte aligned
  TensorView y;                 // as v; may be v itself; CUDA rows leave rows
                                // of no sequence as they are
};

using LinearAttentionRow =
    KernelRow<LinearAttentionDesc, LinearAttentionParams>;

// A token's result depends on its sequence only, bit for bit: tokens are taken
// one after another, and sums over keys run in one order. Not so of
// "cuda_chunks", whose sums depend on where a step's tokens begin.
absl::Span<const LinearAttentionRow> LinearAttentionTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_
