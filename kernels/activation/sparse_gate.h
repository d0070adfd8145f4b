// sparse_gate: of each row x, what lies beyond `deviations` standard deviations
// from its mean: x = max(x - (mean + deviations * deviation), 0), the deviation
// being that of the row as a whole population. Source: transformers'
// Gemma3nTextMLP, whose gates that leaves few of (arXiv:2506.06644,
// "statistical top-k").
#ifndef INLAY_KERNELS_ACTIVATION_SPARSE_GATE_H_
#define INLAY_KERNELS_ACTIVATION_SPARSE_GATE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct SparseGateDesc {
  int64_t width = 0;
  DType activation = DType::kF32;
};

struct SparseGateParams {
  TensorView x;  // [rows, width], in place; rows may be strided
  float deviations = 0.0f;
};

// Sums are float32 or more; a row's results depend on that row only. NaN stays.
using SparseGateRow = KernelRow<SparseGateDesc, SparseGateParams>;
absl::Span<const SparseGateRow> SparseGateTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_ACTIVATION_SPARSE_GATE_H_
