// gemm's CUDA row for int8 weights with one scale a row and x rounded to int8,
// a scale a token, where its rows are many: on Hopper a kernel on packed codes;
// for very many, and elsewhere, cuBLASLt on plain ones, exactly, then one
// kernel for scales, bias and residual (FP8.md). Few rows, and matrices of
// other scales, go the way of other quantised weights.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/fp8_cuda.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/int8_cuda.h"
#include "kernels/gemm/rounded_input.h"
#include "memory/status.h"

namespace inlay {

// gemm_cuda_quantised.cc
size_t GemmCudaQuantisedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows);

namespace {

// On Hopper; more are faster by cuBLASLt (FP8.md).
constexpr int64_t kMostInt8CodesRows = 2048;
// Elsewhere; fewer are faster with x as it is.
constexpr int64_t kLeastInt8Rows = 513;
// Of codes of w at a time: more than fill the chip.
constexpr int64_t kInt8CodeBytes = int64_t{128} << 20;
// Of products at a time, so that the kernel after finds them in the L2.
constexpr int64_t kProductBytes = int64_t{32} << 20;
constexpr size_t kPartAlignment = 256;

// Parts of the workspace, one after another; for more rows of x none is
// smaller.
struct Int8Workspace {
  Int8Workspace(const GemmDesc& desc, int64_t m) {
    const int64_t most = std::min(desc.n, WholeBlocks(kInt8CodeBytes / desc.k));
    rows = std::min(most, WholeBlocks(kProductBytes / (4 * m)));
    w_codes = CublasLt::kWorkspaceBytes;
    w_scales = After(w_codes, most * desc.k);
    x = After(w_scales, most * 4);
    products = x + RoundedInputBytes(m, desc.k);
    bytes = After(
        products,
        std::min(4 * m * most, std::max(kProductBytes, 4 * m * kFp8BlockRows)));
  }
  static int64_t WholeBlocks(int64_t rows) {
    return std::max<int64_t>(rows / kFp8BlockRows, 1) * kFp8BlockRows;
  }
  static size_t After(size_t at, int64_t bytes) {
    return (at + static_cast<size_t>(bytes) + kPartAlignment - 1) /
           kPartAlignment * kPartAlignment;
  }

  int64_t rows;  // of w at a time
  size_t w_codes, w_scales, x, products, bytes;
};

// UNIMPLEMENTED: cuBLASLt has no algorithm; y is as before.
absl::Status RunInt8Products(const GemmDesc& desc, const GemmParams& params,
                             CublasLt& cublas, CudaStream& stream) {
  const int64_t m = params.x.rows();
  const QuantMatrix matrix(desc.weight, desc.k);
  const Int8Workspace workspace(desc, m);
  auto* base = static_cast<std::byte*>(params.workspace);
  auto* w_scales = reinterpret_cast<float*>(base + workspace.w_scales);
  INLAY_ASSIGN_OR_RETURN(const RoundedRows x,
                         RoundInput(desc, params, RowRounding::kInt8Rows,
                                    base + workspace.x, stream));
  GemmDesc slice = desc;
  slice.weight = slice.activation = DType::kI8;
  slice.output = DType::kI32;
  GemmParams product;
  product.x = x.codes;
  product.workspace = params.workspace;
  for (int64_t first = 0; first < desc.n; first += workspace.rows) {
    slice.n = std::min(workspace.rows, desc.n - first);
    INLAY_RETURN_IF_ERROR(
        RunUnpackCodes(matrix, params.w.data, first, slice.n, ScaleReach::kRow,
                       base + workspace.w_codes, w_scales, stream));
    product.w =
        MatrixView(base + workspace.w_codes, DType::kI8, slice.n, desc.k);
    product.y = MatrixView(base + workspace.products, DType::kI32, m, slice.n);
    const absl::Status status = cublas.Run(slice, product, stream);
    if (first > 0 && absl::IsUnimplemented(status)) {
      return absl::InternalError(status.message());
    }
    INLAY_RETURN_IF_ERROR(status);
    INLAY_RETURN_IF_ERROR(
        RunScaleInt8(reinterpret_cast<const int32_t*>(product.y.data), x.scales,
                     w_scales, ColumnsOfCall(params, first, slice.n), stream));
  }
  return absl::OkStatus();
}

size_t OthersBytes(const GemmDesc& desc, int64_t max_rows) {
  return GemmCudaQuantisedWorkspaceBytes(desc, max_rows) +
         WidenedInputBytes(desc);
}

RowRounding RoundingFrom(const GemmDesc& desc, int64_t m, int64_t least) {
  return desc.scale_reach == ScaleReach::kRow && m >= least
             ? RowRounding::kInt8Rows
             : RowRounding::kNone;
}

}  // namespace

RowRounding GemmCudaInt8Rounding(const GemmDesc& desc, int64_t m) {
  return RoundingFrom(desc, m, kLeastInt8Rows);
}

size_t GemmCudaInt8WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  const size_t others = OthersBytes(desc, max_rows);
  return max_rows < kLeastInt8Rows
             ? others
             : std::max(others, Int8Workspace(desc, max_rows).bytes);
}

absl::Status RunGemmCudaInt8(const GemmDesc& desc, const GemmParams& params,
                             Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  if (GemmCudaInt8Rounding(desc, params.x.rows()) != RowRounding::kNone &&
      HasCodes(params)) {
    const absl::StatusOr<CublasLt*> cublas = CublasLtOf(cuda);
    if (cublas.ok()) {
      const absl::Status status = RunInt8Products(desc, params, **cublas, cuda);
      if (!absl::IsUnimplemented(status)) return status;
    }
  }
  return RunKeepingInput(desc, params, cuda);
}

RowRounding GemmCudaInt8Sm90Rounding(const GemmDesc& desc, int64_t m) {
  return RoundingFrom(desc, m, kLeastCodesRows);
}

size_t GemmCudaInt8Sm90WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  if (max_rows > kMostInt8CodesRows) {
    return GemmCudaInt8WorkspaceBytes(desc, max_rows);
  }
  return std::max(OthersBytes(desc, max_rows),
                  RoundedInputBytes(max_rows, desc.k));
}

absl::Status RunGemmCudaInt8Sm90(const GemmDesc& desc, const GemmParams& params,
                                 Stream& stream) {
  const int64_t m = params.x.rows();
  const RowRounding rounding = GemmCudaInt8Sm90Rounding(desc, m);
  CudaStream& cuda = CudaStream::Of(stream);
  if (rounding == RowRounding::kNone || !HasCodes(params)) {
    return RunKeepingInput(desc, params, cuda);
  }
  return m <= kMostInt8CodesRows ? RunRoundedWide(desc, params, rounding, cuda)
                                 : RunGemmCudaInt8(desc, params, stream);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
