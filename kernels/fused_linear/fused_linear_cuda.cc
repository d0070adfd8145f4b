// fused_linear by the kernels for few rows (kernels/gemm/gemv_sm90.cu) and for
// some dozen (skinny_sm90.cu), in parts of as many rows as they take.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/fused_linear/fused_linear.h"
#include "kernels/gemm/gemv_cuda.h"
#include "kernels/gemm/skinny_cuda.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunFusedLinearSm90(const FusedLinearDesc& desc,
                                const FusedLinearParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const GemmDesc& gemm = desc.gemm;
  GemvFusion fusion;
  fusion.normalise = desc.normalised;
  fusion.norm_weight = params.norm_weight;
  fusion.epsilon = params.epsilon;
  fusion.gated = desc.gated;
  fusion.function = desc.function;
  const int64_t rows = params.gemm.x.rows();
  int64_t most = BulkGemvRows(gemm, params.gemm.x, params.gemm.w, cuda);
  if (desc.normalised) most = std::min(most, int64_t{1});
  if (!desc.normalised && SkinnyServes(gemm, params.gemm, cuda))
    return RunSkinnyGemm(gemm, params.gemm, fusion, cuda);
  if (most == 0) {
    return absl::InternalError(FormattedString(
        "fused_linear: x at %p and w at %p with rows %d and %d bytes apart do "
        "not lie on multiples of 16 bytes, or %d columns of x do not fit",
        params.gemm.x.data, params.gemm.w.data, params.gemm.x.row_stride_bytes,
        params.gemm.w.row_stride_bytes, gemm.k));
  }
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t m = std::min(most, rows - first);
    GemmParams part = params.gemm;
    part.x = part.x.RowSlice(first, m);
    part.y = part.y.RowSlice(first, m);
    if (!part.residual.empty()) {
      part.residual = part.residual.RowSlice(first, m);
    }
    INLAY_RETURN_IF_ERROR(RunBulkGemv(
        gemm, part, PlanGemv(gemm.n, gemm.k, cuda.num_sms()), fusion, cuda));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
