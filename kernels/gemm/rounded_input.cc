#if INLAY_HAS_CUDA

#include "kernels/gemm/rounded_input.h"

#include <algorithm>

#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "kernels/rounding/rounding_cuda.h"
#include "memory/status.h"

namespace inlay {

// gemm_cuda_quantised.cc
size_t GemmCudaQuantisedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
absl::Status RunGemmCudaQuantised(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream);

namespace {

constexpr size_t kAlignment = 256;
// Rows widened at a time: no call but one that nothing was foreseen for.
constexpr int64_t kWidenedRows = 512;

size_t Aligned(int64_t bytes) {
  return (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment *
         kAlignment;
}

}  // namespace

size_t RoundedInputBytes(int64_t rows, int64_t k) {
  const int64_t scales =
      std::max(RoundingScales(RowRounding::kFp8Rows, rows, k),
               RoundingScales(RowRounding::kFp8Groups, rows, k));
  return Aligned(rows * k) +
         Aligned(scales * static_cast<int64_t>(sizeof(float)));
}

size_t WidenedInputBytes(const GemmDesc& desc) {
  return kAlignment + Aligned(kWidenedRows * desc.k * 2);
}

bool HasCodes(const GemmParams& params) {
  return params.x_scales != nullptr ||
         (params.x.row_stride_bytes % 16 == 0 &&
          reinterpret_cast<uintptr_t>(params.x.data) % 16 == 0);
}

absl::StatusOr<RoundedRows> RoundInput(const GemmDesc& desc,
                                       const GemmParams& params,
                                       RowRounding rounding, std::byte* at,
                                       CudaStream& stream) {
  if (params.x_scales != nullptr) {
    return RoundedRows{params.x, params.x_scales};
  }
  RoundingDesc plain;
  plain.width = desc.k;
  plain.input = plain.activation = desc.activation;
  RoundingParams round;
  round.rounding = rounding;
  round.x = params.x;
  const int64_t rows = params.x.rows();
  round.codes = MatrixView(at, RoundingDType(rounding), rows, desc.k);
  round.scales = reinterpret_cast<float*>(at + Aligned(rows * desc.k));
  INLAY_RETURN_IF_ERROR(RunRoundingCuda(plain, round, stream));
  return RoundedRows{round.codes, round.scales};
}

absl::Status RunRoundedWide(const GemmDesc& desc, const GemmParams& params,
                            RowRounding rounding, CudaStream& stream) {
  INLAY_ASSIGN_OR_RETURN(
      const RoundedRows x,
      RoundInput(desc, params, rounding,
                 static_cast<std::byte*>(params.workspace), stream));
  GemmParams codes = params;
  codes.x = x.codes;
  codes.x_scales = x.scales;
  const QuantForm form = QuantFormOf(desc.weight);
  return RunQuantisedWide(desc, codes, form,
                          PlanWide(form, desc.n, desc.k, x.codes.rows(),
                                   stream.num_sms(), /*codes=*/true),
                          stream);
}

absl::Status RunKeepingInput(const GemmDesc& desc, const GemmParams& params,
                             CudaStream& stream) {
  if (params.x_scales == nullptr) {
    return RunGemmCudaQuantised(desc, params, stream);
  }
  const RowRounding rounding =
      params.x.dtype == DType::kI8           ? RowRounding::kInt8Rows
      : desc.scale_reach == ScaleReach::kRow ? RowRounding::kFp8Rows
                                             : RowRounding::kFp8Groups;
  const int64_t m = params.x.rows();
  const size_t used =
      GemmCudaQuantisedWorkspaceBytes(desc, std::min(kWidenedRows, m));
  auto* widened = static_cast<std::byte*>(params.workspace) +
                  Aligned(static_cast<int64_t>(used));
  for (int64_t first = 0; first < m; first += kWidenedRows) {
    const int64_t rows = std::min(kWidenedRows, m - first);
    GemmParams part = RowsOfCall(params, first, rows);
    part.x = MatrixView(widened, desc.activation, rows, desc.k);
    part.x_scales = nullptr;
    INLAY_RETURN_IF_ERROR(RunWidenCuda({params.x, params.x_scales}, rounding,
                                       first, part.x, stream));
    INLAY_RETURN_IF_ERROR(RunGemmCudaQuantised(desc, part, stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
