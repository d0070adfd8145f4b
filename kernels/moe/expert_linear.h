// expert_linear: a linear layer with a weight matrix an expert. Row s of y is
// made by the expert of slot s (routing.h): y[s] = w[e] x[s'] + bias[e].
#ifndef INLAY_KERNELS_MOE_EXPERT_LINEAR_H_
#define INLAY_KERNELS_MOE_EXPERT_LINEAR_H_

#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/dispatch.h"
#include "kernels/gemm/gemm.h"
#include "memory/tensor.h"

namespace inlay {

struct ExpertLinearDesc {
  GemmDesc gemm;  // one expert's product; not permuted
  int num_experts = 0;
  int top_k = 0;
  // x has a row a slot; otherwise a row a token, which its slots share.
  bool row_a_slot = false;
  // w is gates above ups, n / 2 rows each: y's first n / 2 columns are
  // function(gate) * up of rounded gate and up (activation.h), the others are
  // room. CUDA's rows of packed weights.
  bool gated = false;
  Activation function = Activation::kSilu;
  float limit = 0.0f;
};

// One matrix [n, k] an expert, all in one format, each packed as the row wants
// it.
struct ExpertMatrices {
  // CPU: where each lies, [num_experts], with dense rows.
  const std::byte* const* each = nullptr;
  // Others: that of expert e lies at base + e * stride_bytes.
  const std::byte* base = nullptr;
  size_t stride_bytes = 0;  // the bytes of one
  // CUDA rows: if not null, that of expert e lies at base + table[e] instead,
  // at a multiple of 16. [num_experts], on the device; made by work queued
  // before (expert_fetch.h). Outputs have the same bits.
  const int64_t* table = nullptr;
};

struct ExpertLinearParams {
  // [tokens or slots, k], rows may be strided. Where ExpertRounding(row, desc,
  // slots) is one and slots are listed, x may be codes, beside their scales.
  TensorView x;
  const float* x_scales = nullptr;
  ExpertMatrices w;
  const float* bias = nullptr;  // [num_experts, n] or null
  // As routing gives them, of all tokens of the call. Routing may know more
  // experts (identity.h): their numbers are num_experts and up, so their slots
  // are listed last, and their rows of y stay as they are. CUDA rows: all null
  // where each token goes to every expert (top_k is num_experts): slot t *
  // top_k + e.
  const int32_t* experts = nullptr;
  const int32_t* offsets = nullptr;
  const int32_t* slots = nullptr;
  TensorView y;  // [slots, n], rows may be strided; must not overlap x
  void* workspace = nullptr;
};

using ExpertLinearRow = KernelRow<ExpertLinearDesc, ExpertLinearParams>;

// A row of y depends on its row of x and its expert only; on CUDA within
// rounding, and to the bit where gemm.batch_invariant says so. Matrices that no
// slot asks for are not read. CPU rows are those of gemm, of the same names,
// called for each expert's rows: their bits are gemm's. CUDA rows
// read nothing on the host. `workspace_bytes` counts tokens.
absl::Span<const ExpertLinearRow> ExpertLinearTable();

// How `row` rounds x of a call with so many slots before it multiplies: who
// makes x may do it.
RowRounding ExpertRounding(const ExpertLinearRow& row,
                           const ExpertLinearDesc& desc, int64_t slots);

// How `row` wants one expert's matrix packed; null: as it lies in the file.
// `desc`: of one expert.
const WeightPacking<GemmDesc>* ExpertPacking(const ExpertLinearRow& row,
                                             const GemmDesc& desc);

}  // namespace inlay

#endif  // INLAY_KERNELS_MOE_EXPERT_LINEAR_H_
