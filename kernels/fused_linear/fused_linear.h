// fused_linear: a linear layer of few rows with what comes before and after it:
// y = f(rms_norm(x) w^T + bias) + residual, f nothing or act(gate) * up. The
// bits are those of rms_norm, gemm ("cuda"; rows that are normalised:
// "cuda_gemv") and activation one after the other, in one launch, without what
// lies between them in memory; of packed weights (gemm's "cuda_quantised") they
// are but for the order in which float32 sums are added up.
#ifndef INLAY_KERNELS_FUSED_LINEAR_FUSED_LINEAR_H_
#define INLAY_KERNELS_FUSED_LINEAR_FUSED_LINEAR_H_

#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/dispatch.h"
#include "kernels/gemm/gemm.h"

namespace inlay {

struct FusedLinearDesc {
  // As of the product alone: n rows of w, x of `activation` where it is not
  // normalised.
  GemmDesc gemm;
  bool normalised = false;  // x is f32
  // w is gate above up, n / 2 rows each; y [m, n / 2] of gemm.activation.
  bool gated = false;
  Activation function = Activation::kSilu;
};

struct FusedLinearParams {
  GemmParams gemm;                     // no residual where gated; no workspace
  const float* norm_weight = nullptr;  // [k], or null for 1
  float epsilon = 0.0f;
};

using FusedLinearRow = KernelRow<FusedLinearDesc, FusedLinearParams>;
// Rows for GPUs only.
absl::Span<const FusedLinearRow> FusedLinearTable();

// Whether the ops apart do not serve so many rows of x faster. Others are
// computed too, in parts where they are many.
bool FusedLinearServes(const FusedLinearDesc& desc, int64_t rows);

}  // namespace inlay

#endif  // INLAY_KERNELS_FUSED_LINEAR_FUSED_LINEAR_H_
