// embedding: y[t] = table[ids[t]] * scale, widened to the activation type; with
// `accumulate`, added to y (learned positions). CUDA rows keep a plain table's
// type, too: rows of activations are picked with it, and stay as they are with
// a scale of 1.
#ifndef INLAY_KERNELS_EMBEDDING_EMBEDDING_H_
#define INLAY_KERNELS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct EmbeddingDesc {
  int64_t width = 0;
  DType table = DType::kF32;
  DType activation = DType::kF32;
};

struct EmbeddingParams {
  TensorView table;  // [vocab, width]
  // [tokens], none below 0; those beyond the table read its first row.
  const int32_t* ids = nullptr;
  float scale = 1.0f;
  bool accumulate = false;
  TensorView y;  // [tokens, width]
};

using EmbeddingRow = KernelRow<EmbeddingDesc, EmbeddingParams>;
absl::Span<const EmbeddingRow> EmbeddingTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_EMBEDDING_EMBEDDING_H_
