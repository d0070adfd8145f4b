// expanded_attention: latent attention over a cache of latents with keys and
// values made of them: head h's key of a token is K[h] latent and behind it the
// row's other columns, its value V[h] latent. The same as attention over the
// latents themselves with absorbed queries, but for rounding; less arithmetic
// where there are many queries (attention_expand.h). Source: arXiv:2405.04434.
#ifndef INLAY_KERNELS_ATTENTION_EXPANDED_ATTENTION_H_
#define INLAY_KERNELS_ATTENTION_EXPANDED_ATTENTION_H_

#include <cstddef>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/dispatch.h"

namespace inlay {

// Causal order; no window, no mask.
struct ExpandedAttentionDesc {
  int num_heads = 0;
  int rank = 0;        // of the latent, the row's first columns
  int key_dim = 0;     // columns of a key that are made of it
  int rope_dim = 0;    // columns of a key that are the row's others
  int value_dim = 0;   // of a head
  int block_size = 0;  // of the cache
  DType kv = DType::kF32;
  DType weight = DType::kF32;
  DType activation = DType::kF32;
  float scale = 1.0f;

  int head_dim() const { return key_dim + rope_dim; }
  ExpandedDims dims() const { return {key_dim, rope_dim, value_dim, rank}; }
};

// A matrix a head, that of head h at base + h * stride_bytes, dense rows.
struct HeadMatrices {
  const std::byte* base = nullptr;
  size_t stride_bytes = 0;
};

struct ExpandedAttentionParams {
  TensorView q;         // [tokens, num_heads * head_dim()], rows may be strided
  TensorView out;       // [tokens, num_heads * value_dim]; must not overlap q
  KvLayerView kv;       // of one head of rank + rope_dim; value_dim is rank
  HeadMatrices keys;    // [rank, key_dim]: K[h]'s transpose
  HeadMatrices values;  // [value_dim, rank]
  // As AttentionParams has them. CPU rows: all of them. CUDA rows do not read
  // them: the tiles of `plan`, whose shape expands, and nothing where it has
  // none; other rows of `out` are left alone.
  absl::Span<const AttentionSequence> sequences;
  const AttentionPlan* plan = nullptr;
  void* workspace = nullptr;  // AttentionPlan::unpacked_bytes
};

using ExpandedAttentionRow =
    KernelRow<ExpandedAttentionDesc, ExpandedAttentionParams>;

// A query's result depends only on its own position and its sequence's keys. On
// CUDA keys and values are rounded to the activations' type.
absl::Span<const ExpandedAttentionRow> ExpandedAttentionTable();

absl::Status ValidateExpandedAttention(const ExpandedAttentionDesc& desc,
                                       const ExpandedAttentionParams& params);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_EXPANDED_ATTENTION_H_
