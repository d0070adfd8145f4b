// attention: softmax(q k^T * scale) v over a paged KV cache, for a ragged batch
// of sequences (prefill chunks and decodes together). Online softmax over KV
// blocks (Milakov and Gimelshein, arXiv:1805.02867; FlashAttention,
// arXiv:2205.14135): no m x n matrix.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxAttentionHeadDim = 576;  // latent rows of DeepSeek
// What CUDA rows have registers for.
inline constexpr int kMaxCudaValueDim = 512;

// h query heads share h / num_kv_heads-fold the KV heads (GQA); query head i
// reads KV head i / (num_heads / num_kv_heads).
struct AttentionDesc {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  DType kv = DType::kF32;
  DType activation = DType::kF32;
  float scale = 1.0f;
  float softcap = 0.0f;  // > 0: scores become softcap * tanh(score / softcap)
                         // before the mask (Gemma 2)
  int window = 0;  // > 0: a query at position p sees keys in (p - window, p]
                   // (Mistral); 0: all keys up to p
  bool causal = true;  // false: every query of a sequence sees all its keys
                       // (window must be 0)
  // > 0, <= head_dim: values are the first so many elements of the keys' rows,
  // and each head gives so many (latent attention); 0: both are head_dim.
  int value_dim = 0;
  // > 0: a query sees of its keys no more than so many, those that
  // AttentionParams::selection names (sparse attention by content). Needs
  // causal order and no window.
  int selects = 0;
  // Keys are selected in blocks of so many, a power of two that divides
  // `selects` and the cache's block_size; the query's own block is one of them.
  int select_block = 1;

  int out_dim() const { return value_dim > 0 ? value_dim : head_dim; }
};

// One sequence of the batch. Its queries are rows [q_begin, q_begin + q_len) of
// q and stand at positions [kv_len - q_len, kv_len); keys and values of
// positions [0, kv_len) are in the cache (this step's included).
struct AttentionSequence {
  int32_t q_begin = 0;
  int32_t q_len = 0;
  int32_t kv_len = 0;
  const int32_t* blocks =
      nullptr;  // block of position p: blocks[p / block_size]
};

struct AttentionPlan;  // attention_plan.h
struct AttentionMask;  // attention_mask.h

struct AttentionParams {
  TensorView q;    // [tokens, num_heads * head_dim], rows may be strided
  TensorView out;  // [tokens, num_heads * out_dim()]; must not overlap q
  KvLayerView kv;
  absl::Span<const AttentionSequence> sequences;
  const float* sinks = nullptr;  // [num_heads] extra logits in the denominator
                                 // (gpt-oss), or null
  // [num_heads] ALiBi: the score of the query at p and the key at k grows by
  // slope * (k - p), after the softcap (Press et al., arXiv:2108.12409); or
  // null. FillAlibiSlopes() of attention_mask.h has the paper's.
  const float* alibi_slopes = nullptr;
  // What queries see, where it is not what desc says, or null. Compiled for
  // desc and `sequences`. On the host: CUDA rows have it in the plan and do not
  // read it here. A query that sees nothing gives zeros.
  const AttentionMask* mask = nullptr;
  // Where desc.selects: [tokens, num_kv_heads, desc.selects / select_block],
  // of each query and KV head the blocks of keys that the query sees, in
  // ascending order of position; block b is slots [b * select_block, (b + 1) *
  // select_block), slots being block * block_size + offset in the cache's
  // block. The query at p sees the first SelectedKeys() keys of them. There are
  // no masks and no ALiBi then, and `blocks` of sequences are not read.
  const int32_t* selection = nullptr;
  // CUDA rows: AttentionWorkspaceBytes() of attention_plan.h.
  void* workspace = nullptr;
  // CUDA rows only: made for `sequences` and uploaded, see attention_plan.h;
  // they do not read `sequences` itself.
  const AttentionPlan* plan = nullptr;
};

// How many of the selected keys the query at `position` sees: all of its blocks
// but the last, its own, and of that one what is not after it.
inline int32_t SelectedKeys(int selects, int select_block, int32_t position) {
  const int32_t before = position / select_block;
  const int32_t others = selects / select_block - 1;
  return (before < others ? before : others) * select_block +
         position % select_block + 1;
}

using AttentionRow = KernelRow<AttentionDesc, AttentionParams>;

// A query's result depends only on its own position and its sequence's keys,
// not on how the sequence was chunked, on other sequences or on the number of
// threads: KV tiles are aligned to absolute positions and taken in ascending
// order.
absl::Span<const AttentionRow> AttentionTable();

absl::Status ValidateAttention(const AttentionDesc& desc,
                               const AttentionParams& params);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_H_
