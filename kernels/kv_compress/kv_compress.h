// kv_compress: what the keys of several tokens become as one, for attention
// over compressed keys (DeepSeek-V4). A token has a row of values and a row of
// gates in the cache (K and V of a layer of its own), and of row_tokens tokens
// that end where a row does (KvLayerShape::row_tokens)
//
//   y[d] = sum over tokens j of softmax over j(gate[j][d] + bias[j][d]) *
//          value[j][d]
//
// Where it overlaps, tokens have two such rows (heads): y is made of head 0 of
// the row_tokens tokens before and head 1 of these, in one softmax; where there
// are none before, of these alone. Source: DeepSeek-V4's published code.
#ifndef INLAY_KERNELS_KV_COMPRESS_KV_COMPRESS_H_
#define INLAY_KERNELS_KV_COMPRESS_KV_COMPRESS_H_

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/dispatch.h"
#include "kernels/indexer/index_plan.h"
#include "memory/kv/kv_layout.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMaxRowTokens = 1024;

struct KvCompressDesc {
  int head_dim = 0;
  int row_tokens = 0;  // a power of two
  bool overlaps = false;
  DType kv = DType::kF32;
  DType activation = DType::kF32;  // of y

  int num_heads() const { return overlaps ? 2 : 1; }
  // Tokens that a row is made of.
  int reach() const { return num_heads() * row_tokens; }
};

struct KvCompressParams {
  KvLayerView kv;  // num_heads() heads, K and V
  // [row_tokens, num_heads() * head_dim] f32.
  const float* bias = nullptr;
  absl::Span<const AttentionSequence> sequences;  // this step's in the cache
  // [tokens, head_dim]: rows of tokens that end one; zeros for the others.
  TensorView y;
  // CUDA rows only: made for `sequences` and uploaded; they do not read
  // `sequences` itself.
  const IndexPlan* plan = nullptr;
};

using KvCompressRow = KernelRow<KvCompressDesc, KvCompressParams>;

// A token's row depends on its sequence's cache only, not on chunks or on what
// else is in the batch. Rows of the cache before the reach of a step's tokens
// are not read.
absl::Span<const KvCompressRow> KvCompressTable();

// INVALID_ARGUMENT naming the first number that is out of range.
absl::Status ValidateKvCompress(const KvCompressDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_KV_COMPRESS_KV_COMPRESS_H_
