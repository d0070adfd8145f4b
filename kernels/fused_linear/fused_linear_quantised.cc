// fused_linear over packed quantised weights, gates and ups, by gemm's kernel
// for some dozen rows (kernels/gemm/quantised/product_streamed_sm90.cuh).
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/fused_linear/fused_linear.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

const char* FusedLinearQuantisedRefuses(const FusedLinearDesc& desc,
                                        const DeviceInfo& device) {
  const GemmDesc& gemm = desc.gemm;
  if (device.sm != 90) return "written for compute capability 9.0";
  if (!IsBlockFormat(gemm.weight)) return "weights must be a block format";
  if (gemm.activation != DType::kF16 && gemm.activation != DType::kBF16) {
    return "x must be f16 or bf16";
  }
  if (!desc.gated || desc.normalised) {
    return "takes gates and ups, and x that is normalised already";
  }
  if (HasLimit(desc.function)) return "takes no clamped SiLU";
  if (gemm.output != gemm.activation) return "y must be of the type of x";
  if (gemm.permuted) return "takes no permuted columns";
  if (gemm.batch_invariant) return "its sums depend on how many rows x has";
  if (gemm.n % (2 * kQuantRows) != 0) {
    return "gates and ups must be multiples of 16";
  }
  if (!StreamedTakesColumns(gemm.k)) return "k must be a multiple of 64";
  return nullptr;
}

absl::Status RunFusedLinearQuantised(const FusedLinearDesc& desc,
                                     const FusedLinearParams& params,
                                     Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const GemmDesc& gemm = desc.gemm;
  const QuantForm form = QuantFormOf(gemm.weight);
  const int64_t rows = params.gemm.x.rows();
  if (!WideTakes(params.gemm.x)) {
    return absl::InternalError(FormattedString(
        "fused_linear: x at %p with rows %d bytes apart does not lie on "
        "multiples of 16 bytes",
        params.gemm.x.data, params.gemm.x.row_stride_bytes));
  }
  const StreamedPlan plan =
      PlanStreamed(form, gemm.n, gemm.k, StreamedTilesOfX(form, rows),
                   cuda.num_sms(), /*gated=*/true);
  if (plan.places == 0) {
    return absl::InternalError(
        FormattedString("fused_linear: %d columns of x do not fit", gemm.k));
  }
  const int64_t most = 8 * plan.x_tiles;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t m = std::min(most, rows - first);
    GemmParams part = params.gemm;
    part.x = part.x.RowSlice(first, m);
    part.y = part.y.RowSlice(first, m);
    INLAY_RETURN_IF_ERROR(
        RunQuantisedStreamed(gemm, part, form, plan, cuda, desc.function));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
