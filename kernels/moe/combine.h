// moe_combine: what a mixture of experts gives, from what the experts of each
// token gave: y = residual + sum over ranks r of weight[r] * x[slot r], and a
// shared expert's part, which may have a gate: + sigmoid(gate) * shared.
#ifndef INLAY_KERNELS_MOE_COMBINE_H_
#define INLAY_KERNELS_MOE_COMBINE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct MoeCombineDesc {
  int64_t width = 0;
  int top_k = 0;
  bool shared = false;  // there is a shared expert
  bool gated = false;   // with a gate
};

// All float32, rows may be strided, those of `shared` by 0.
struct MoeCombineParams {
  TensorView x;                    // [tokens * top_k, width]
  const float* weights = nullptr;  // [tokens, top_k]
  TensorView shared;               // [tokens, width]
  TensorView gate;                 // [tokens, 1], before the sigmoid
  TensorView residual;             // [tokens, width] or empty; may be y
  TensorView y;                    // [tokens, width]; overlaps nothing else
};

using MoeCombineRow = KernelRow<MoeCombineDesc, MoeCombineParams>;

// Ranks are added in ascending order, then the shared part, then the residual:
// a token's bits depend on nothing beside it.
absl::Span<const MoeCombineRow> MoeCombineTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_COMBINE_H_
