// gemm: the linear layer. y[m, n] = x[m, k] * w[n, k]^T + bias[n] + residual[m,
// n].
#ifndef INLAY_KERNELS_GEMM_GEMM_H_
#define INLAY_KERNELS_GEMM_GEMM_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/rounding/rounding.h"
#include "memory/tensor.h"

namespace inlay {

// How far one scale of e4m3 or int8 weights reaches, powers of two between
// scales of e4m3 aside: what they mean, not how they are stored.
enum class ScaleReach : uint8_t {
  kGroup,  // 128 columns of a row
  kBlock,  // 128 rows by 128 columns
  kRow,
};

struct GemmDesc {
  int64_t n = 0;  // output features
  int64_t k = 0;  // input features
  DType weight = DType::kF32;
  DType activation = DType::kF32;  // of x
  DType output = DType::kF32;      // of residual and y
  bool batch_invariant = false;    // see GemmTable(); CPU rows always are
  bool permuted = false;           // GemmParams::permutation is there
  // f16 weights that bf16 holds as well, as those of a checkpoint in bf16.
  bool fits_bf16 = false;
  // Found by WeightPacking::inspect once the weights are there; chooses among
  // ways within a row, never the row.
  ScaleReach scale_reach = ScaleReach::kGroup;
};

struct GemmParams {
  // [m, k], rows may be strided. Where GemmRounding(row, desc, m) is one, x may
  // be its codes already, with their scales beside them.
  TensorView x;
  const float* x_scales = nullptr;
  TensorView w;                 // [n, k], rows may be strided
  const float* bias = nullptr;  // [n] or null
  // [k]: column i of w is multiplied by x[m, permutation[i]] (weights whose
  // columns were sorted by their groups: GPTQ's act order).
  const int32_t* permutation = nullptr;
  TensorView residual;  // [m, n] or empty; may be the same memory as y
  TensorView y;         // [m, n], rows may be strided; must not overlap x
  void* workspace = nullptr;
};

using GemmRow = KernelRow<GemmDesc, GemmParams>;

// Every row accumulates in float32 or wider, and a row of y depends only on the
// same row of x: not on m, not on the other rows, not on the number of threads
// (batch invariance). bf16 and f16 weights are widened exactly, and x is taken
// as it is, but: "cpu_bf16", the default for large bf16 weights on AMD's
// processors that multiply pairs of bf16, rounds x to bf16 once (and f16
// weights: those that it holds, or for who asks for it by name); "cpu_amx", the
// default for large f16 weights where there is AMX, leaves out less than 2^-14
// of a product of those; "cpu_packed*" round x to 8 bits, or for f8 weights not
// at all, but for "cpu_packed_bf16", the default for large ones on such
// processors: to bf16. On CUDA "cuda_gemv" keeps that promise and serves many
// rows slowly; "cuda", which takes that, cuBLASLt or others by the number of
// rows, and "cuda_cublaslt" keep it where desc.batch_invariant says so; so does
// "cuda_quantised", whose packed weights round scales to f16.
absl::Span<const GemmRow> GemmTable();

// How `row` rounds m rows of x before it multiplies: who makes x may do it.
RowRounding GemmRounding(const GemmRow& row, const GemmDesc& desc, int64_t m);

// Loads cuBLASLt for a CUDA stream, which otherwise happens at its first
// product; that of many rows must not happen first while a graph is captured.
// FAILED_PRECONDITION says what is missing: the row "cuda" works without.
absl::Status PrepareGemmCuda(Stream& stream);

// INVALID_ARGUMENT naming the first shape or dtype that does not fit `desc`.
// For tests and load time; run() does not check.
absl::Status ValidateGemm(const GemmDesc& desc, const GemmParams& params);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMM_H_
