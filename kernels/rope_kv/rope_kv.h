// rope_kv: what lies between a layer's qkv projection and its attention, in one
// pass: RMS norms of the heads of q and k, rotary positions, keys and values
// into the paged cache. The bits are those of rms_norm, rope and kv_write one
// after the other; k is left in qkv as it was.
#ifndef INLAY_KERNELS_ROPE_KV_ROPE_KV_H_
#define INLAY_KERNELS_ROPE_KV_ROPE_KV_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/rope/rope.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

struct RopeKvDesc {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;  // even, <= head_dim; 0: nothing is turned
  RopeStyle style = RopeStyle::kHalf;
  bool q_norm = false;
  bool k_norm = false;
  DType kv = DType::kF32;
  DType activation = DType::kF32;
};

// A norm of heads, weights [head_dim] or null for 1.
struct HeadNorm {
  const float* weight = nullptr;
  float epsilon = 0.0f;
};

struct RopeKvParams {
  // [tokens, (num_heads + 2 num_kv_heads) * head_dim]: q, k and v; rows may be
  // strided. q is normalised and turned in place.
  TensorView qkv;
  HeadNorm q_norm;
  HeadNorm k_norm;
  const float* cos = nullptr;  // [tokens, rotary_dim / 2], dense
  const float* sin = nullptr;  // the same
  KvLayerView kv;
  // [tokens], as of kv_write: nothing is written where negative; q is turned.
  const int64_t* slots = nullptr;
};

using RopeKvRow = KernelRow<RopeKvDesc, RopeKvParams>;
// Rows for GPUs only.
absl::Span<const RopeKvRow> RopeKvTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_ROPE_KV_ROPE_KV_H_
