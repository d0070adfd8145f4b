// gemm's CUDA row for e4m3 weights with x rounded to e4m3 where its rows are
// many: a kernel on packed codes, and for very many cuBLASLt on plain ones
// (FP8.md). Few rows, and what cuBLASLt has no algorithm for, go the way of
// other quantised weights.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/fp8_cuda.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/rounded_input.h"
#include "memory/status.h"

namespace inlay {

// gemm_cuda_quantised.cc
const WeightPacking<GemmDesc>* GemmCudaPacking(const GemmDesc& desc);
size_t GemmCudaQuantisedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);

namespace {

// More rows of x are faster by cuBLASLt (FP8.md).
constexpr int64_t kMostCodesRows = 512;
// Fewer go with x as it is, of f8_g32 all that cuBLASLt does not get.
int64_t LeastRows(const GemmDesc& desc) {
  return desc.weight == DType::kF8_G128 ? kLeastCodesRows : kMostCodesRows + 1;
}
// Of unpacked rows of w at a time: more than fill the chip.
constexpr int64_t kUnpackedBytes = int64_t{128} << 20;
constexpr size_t kAlignment = 256;

// Parts of the workspace, one after another.
struct Fp8Workspace {
  Fp8Workspace(const GemmDesc& desc, int64_t max_rows) {
    const int64_t most = kUnpackedBytes / desc.k / kFp8BlockRows;
    rows = std::min(desc.n, std::max<int64_t>(most, 1) * kFp8BlockRows);
    w_codes = CublasLt::kWorkspaceBytes;
    w_scales = After(w_codes, rows * desc.k);
    // Of whatever reach: it is known later.
    int64_t scales = 0;
    for (const ScaleReach reach :
         {ScaleReach::kGroup, ScaleReach::kBlock, ScaleReach::kRow}) {
      scales = std::max(scales, Fp8WeightScales(reach, rows, desc.k));
    }
    x = After(w_scales, scales * static_cast<int64_t>(sizeof(float)));
    bytes = x + RoundedInputBytes(max_rows, desc.k);
  }
  static size_t After(size_t at, int64_t bytes) {
    return (at + static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment *
           kAlignment;
  }

  int64_t rows;  // of w at a time
  size_t w_codes, w_scales, x, bytes;
};

// UNIMPLEMENTED: cuBLASLt has no algorithm; y is as before.
absl::Status RunProducts(const GemmDesc& desc, const GemmParams& params,
                         CublasLt& cublas, CudaStream& stream) {
  const int64_t m = params.x.rows();
  const QuantMatrix matrix(desc.weight, desc.k);
  const Fp8Workspace workspace(desc, m);
  auto* base = static_cast<std::byte*>(params.workspace);
  auto* w_scales = reinterpret_cast<float*>(base + workspace.w_scales);
  INLAY_ASSIGN_OR_RETURN(
      const RoundedRows x,
      RoundInput(desc, params,
                 desc.scale_reach == ScaleReach::kRow ? RowRounding::kFp8Rows
                                                      : RowRounding::kFp8Groups,
                 base + workspace.x, stream));
  const Fp8Scales scales = {desc.scale_reach, w_scales, x.scales};
  for (int64_t first = 0; first < desc.n; first += workspace.rows) {
    GemmDesc slice = desc;
    slice.n = std::min(workspace.rows, desc.n - first);
    slice.weight = slice.activation = DType::kF8E4M3;
    INLAY_RETURN_IF_ERROR(
        RunUnpackCodes(matrix, params.w.data, first, slice.n, desc.scale_reach,
                       base + workspace.w_codes, w_scales, stream));
    GemmParams part = ColumnsOfCall(params, first, slice.n);
    part.x = x.codes;
    part.w =
        MatrixView(base + workspace.w_codes, DType::kF8E4M3, slice.n, desc.k);
    const absl::Status status = cublas.Run(slice, part, stream, &scales);
    if (first > 0 && absl::IsUnimplemented(status)) {
      return absl::InternalError(status.message());
    }
    INLAY_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status Inspect(GemmDesc& desc, const std::byte* packed, Stream& stream) {
  INLAY_ASSIGN_OR_RETURN(
      desc.scale_reach, FindScaleReach(QuantMatrix(desc.weight, desc.k), desc.n,
                                       packed, CudaStream::Of(stream)));
  return absl::OkStatus();
}

}  // namespace

const WeightPacking<GemmDesc>* GemmCudaRoundsPacking(const GemmDesc&) {
  static const WeightPacking<GemmDesc> packing = [] {
    WeightPacking<GemmDesc> inspected = *GemmCudaPacking({});
    inspected.inspect = Inspect;
    return inspected;
  }();
  return &packing;
}

RowRounding GemmCudaFp8Rounding(const GemmDesc& desc, int64_t m) {
  if (m < LeastRows(desc)) return RowRounding::kNone;
  if (desc.scale_reach == ScaleReach::kRow) return RowRounding::kFp8Rows;
  // One scale for 32 columns is for nobody's products; cuBLASLt reads scales of
  // groups of x 16 bytes at a time.
  const bool scales =
      desc.weight == DType::kF8_G128 || desc.scale_reach != ScaleReach::kGroup;
  return scales && m % 4 == 0 ? RowRounding::kFp8Groups : RowRounding::kNone;
}

size_t GemmCudaFp8WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  const size_t others =
      GemmCudaQuantisedWorkspaceBytes(desc, max_rows) + WidenedInputBytes(desc);
  if (max_rows < LeastRows(desc)) return others;
  return std::max(others, max_rows <= kMostCodesRows
                              ? RoundedInputBytes(max_rows, desc.k)
                              : Fp8Workspace(desc, max_rows).bytes);
}

absl::Status RunGemmCudaFp8(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const int64_t m = params.x.rows();
  // The rows beyond go with x as it is.
  const int64_t most = desc.scale_reach == ScaleReach::kRow ? m : m / 4 * 4;
  const RowRounding rounding = GemmCudaFp8Rounding(desc, most);
  if (rounding == RowRounding::kNone || !HasCodes(params)) {
    return RunKeepingInput(desc, params, cuda);
  }
  const GemmParams rounded = RowsOfCall(params, 0, most);
  if (most <= kMostCodesRows) {
    INLAY_RETURN_IF_ERROR(RunRoundedWide(desc, rounded, rounding, cuda));
  } else {
    const absl::StatusOr<CublasLt*> cublas = CublasLtOf(cuda);
    if (!cublas.ok()) return RunKeepingInput(desc, params, cuda);
    const absl::Status status = RunProducts(desc, rounded, **cublas, cuda);
    if (absl::IsUnimplemented(status)) {
      return RunKeepingInput(desc, params, cuda);
    }
    INLAY_RETURN_IF_ERROR(status);
  }
  if (most == m) return absl::OkStatus();
  return RunKeepingInput(desc, RowsOfCall(params, most, m - most), cuda);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
