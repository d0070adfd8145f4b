// expert_columns: rows of x for experts whose matrices have their columns in an
// order of their own (GPTQ's act order): row s of y is the row of x that the
// expert of slot s (routing.h) reads, y[s][j] = x[s'][order[e][j]].
// Source: Frantar et al., arXiv:2210.17323; act order is of its authors' code.
#ifndef INLAY_KERNELS_MOE_EXPERT_COLUMNS_H_
#define INLAY_KERNELS_MOE_EXPERT_COLUMNS_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct ExpertColumnsDesc {
  int64_t width = 0;
  int num_experts = 0;
  int top_k = 0;
  // As ExpertLinearDesc.
  bool row_a_slot = false;
  DType activation = DType::kF32;
};

struct ExpertColumnsParams {
  TensorView x;  // [tokens or slots, width], rows may be strided
  const int32_t* orders = nullptr;   // [num_experts, width], each in [0, width)
  const int32_t* experts = nullptr;  // as ExpertLinearParams; null: all
  // [slots, width], rows may be strided; those of experts that have no matrices
  // stay as they are. Must not overlap x.
  TensorView y;
};

using ExpertColumnsRow = KernelRow<ExpertColumnsDesc, ExpertColumnsParams>;

// Bits are moved as they are.
absl::Span<const ExpertColumnsRow> ExpertColumnsTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_COLUMNS_H_
