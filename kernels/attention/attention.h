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

// What selections of keys consist of. Keys are selected in blocks of `block`, a
// power of two that divides `selects` and the cache's block_size; the query's
// own block is always one of them, of which it sees what is not after it; where
// own_if_partial, only if that is not all of it, and of whole blocks one fewer
// than there is room for is selected.
// Where row_tokens is not 0, blocks are of one key, and there are keys of two
// kinds, those of tokens in a window and those of row_tokens tokens each
// (KvLayerShape::row_tokens):
//   min(p + 1, window) and min((p + 1) / row_tokens, selects - window)
// of them for the query at p.
struct KeyMix {
  int window = 0;
  int row_tokens = 0;
  int block = 1;
  bool own_if_partial = false;

  // Keys of the query at `position`.
  int32_t Count(int selects, int64_t position) const {
    const int64_t seen = position + 1;
    const auto least = [](int64_t a, int64_t b) {
      return static_cast<int32_t>(a < b ? a : b);
    };
    if (row_tokens == 0 && own_if_partial) {
      return least(seen / block, selects / block - 1) * block +
             static_cast<int32_t>(seen % block);
    }
    if (row_tokens == 0) {
      return least(position / block, selects / block - 1) * block +
             static_cast<int32_t>(position % block) + 1;
    }
    return least(seen, window) + least(seen / row_tokens, selects - window);
  }
  bool operator==(const KeyMix&) const = default;
};

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
  KeyMix mix;

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
  // [num_heads] ALiBi: the score of the query at p and the key at k falls by
  // slope * |k - p|, after the softcap (Press et al., arXiv:2108.12409; both
  // ways: JinaBERT, arXiv:2310.19923); or null. FillAlibiSlopes() of
  // attention_mask.h has the paper's.
  const float* alibi_slopes = nullptr;
  // What queries see, where it is not what desc says, or null. Compiled for
  // desc and `sequences`. On the host: CUDA rows have it in the plan and do not
  // read it here. A query that sees nothing gives zeros.
  const AttentionMask* mask = nullptr;
  // Where desc.selects: [tokens, num_kv_heads, desc.selects / desc.mix.block],
  // of each query and KV head the blocks of keys that the query sees, in
  // ascending order of position (of two kinds one kind after the other); block
  // b is slots [b * block, (b + 1) * block), slots being block of the cache *
  // block_size + offset in it. The query at p sees the first
  // desc.mix.Count(desc.selects, p) keys of them. There are no masks and no
  // ALiBi then, and `blocks` of sequences are not read.
  const int32_t* selection = nullptr;
  // CUDA rows: AttentionWorkspaceBytes() of attention_plan.h.
  void* workspace = nullptr;
  // CUDA rows only: made for `sequences` and uploaded, see attention_plan.h;
  // they do not read `sequences` itself.
  const AttentionPlan* plan = nullptr;
};

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
