#include "kernels/fused_linear/fused_linear.h"

#if INLAY_HAS_CUDA
#include "kernels/gemm/gemv_cuda.h"
#endif

namespace inlay {

#if INLAY_HAS_CUDA
// fused_linear_cuda.cc
absl::Status RunFusedLinearSm90(const FusedLinearDesc& desc,
                                const FusedLinearParams& params,
                                Stream& stream);
// fused_linear_quantised.cc
const char* FusedLinearQuantisedRefuses(const FusedLinearDesc& desc,
                                        const DeviceInfo& device);
absl::Status RunFusedLinearQuantised(const FusedLinearDesc& desc,
                                     const FusedLinearParams& params,
                                     Stream& stream);

namespace {

const char* Sm90Refuses(const FusedLinearDesc& desc, const DeviceInfo& device) {
  if (device.sm != 90) return "written for compute capability 9.0";
  const GemmDesc& gemm = desc.gemm;
  if (gemm.weight != DType::kBF16 && gemm.weight != DType::kF16) {
    return "weights must be f16 or bf16";
  }
  if (gemm.activation != gemm.weight) {
    return "weights and x must be of one type";
  }
  if (gemm.output != DType::kF32 && gemm.output != gemm.activation) {
    return "y must be f32 or of the type of x";
  }
  if (gemm.k % kBulkColumns != 0) return "k must be a multiple of 64";
  if (desc.gated && HasLimit(desc.function)) {
    return "takes no clamped SiLU";
  }
  if (desc.gated && (gemm.n % 2 != 0 || gemm.output != gemm.activation)) {
    return "gated outputs are of the type of x, and n is even";
  }
  return nullptr;
}

constexpr FusedLinearRow kRows[] = {
    {"cuda_sm90", DeviceKind::kCuda, 90, Sm90Refuses, nullptr,
     RunFusedLinearSm90},
    {"cuda_quantised", DeviceKind::kCuda, 90, FusedLinearQuantisedRefuses,
     nullptr, RunFusedLinearQuantised}};

}  // namespace

absl::Span<const FusedLinearRow> FusedLinearTable() { return kRows; }
#else
absl::Span<const FusedLinearRow> FusedLinearTable() { return {}; }
#endif

bool FusedLinearServes(const FusedLinearDesc& desc, int64_t rows) {
  // Every block sums the squares of all rows: with more rows that takes longer
  // than a launch.
  constexpr int64_t kNormRows = 1;
  constexpr int64_t kRows = 64;
  // One and two have faster ways, more than these another kernel (gemm).
  constexpr int64_t kLeastPackedRows = 3;
  constexpr int64_t kPackedRows = 32;
  if (IsBlockFormat(desc.gemm.weight)) {
    return rows >= kLeastPackedRows && rows <= kPackedRows;
  }
  return rows <= (desc.normalised ? kNormRows : kRows);
}

}  // namespace inlay
