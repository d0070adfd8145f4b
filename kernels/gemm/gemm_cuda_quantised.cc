// gemm's CUDA row for quantised weights: which kernel serves how many rows.
// Few are bound by memory and multiplied as they are packed, by one kernel for
// one or two and another for some dozen; more by one that rounds weights to x's
// type; for very many the weights are unpacked, some rows of w at a time, for
// cuBLASLt.
#if INLAY_HAS_CUDA

#include <algorithm>

#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/quantised/many_rows_packed_cuda.h"
#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/streamed_cuda.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The only one that product_*sm90.cuh have code for.
constexpr int kProductSm = 90;
// More rows of x than these are faster by another kernel (QUANTISED.md): than
// by product_sm90.cuh, product_streamed_sm90.cuh and product_wide_sm90.cuh;
// where the last does not serve, than by one of the first two many times over.
constexpr int64_t kMostFewRows = 2;
// Of x that the second cannot read fewer go to the first.
constexpr int64_t kLeastWideRows = 17;
constexpr int64_t kMostStreamedRows = 32;
constexpr int64_t kMostWideRows = 512;
constexpr int64_t kMostProductRows = 48;
// Of unpacked rows of w at a time: more than fill the chip.
constexpr int64_t kUnpackedBytes = int64_t{96} << 20;

bool Is16Bit(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// Rows of w that are unpacked at a time.
int64_t UnpackedRows(const GemmDesc& desc) {
  const int64_t most = kUnpackedBytes / (2 * desc.k) / kQuantRows * kQuantRows;
  return std::min(desc.n, std::max<int64_t>(most, kQuantRows));
}

size_t UnpackedBytes(const GemmDesc& desc) {
  return static_cast<size_t>(UnpackedRows(desc) * desc.k * 2 + 255) / 256 * 256;
}

// Of x with permuted columns.
size_t GatheredBytes(const GemmDesc& desc, int64_t rows) {
  return desc.permuted ? static_cast<size_t>(rows * desc.k * 2) : 0;
}

absl::Status RunUnpacked(const GemmDesc& desc, const GemmParams& params,
                         CublasLt& cublas, CudaStream& stream) {
  const QuantMatrix matrix(desc.weight, desc.k);
  auto* unpacked =
      static_cast<std::byte*>(params.workspace) + CublasLt::kWorkspaceBytes;
  GemmParams whole = params;
  whole.permutation = nullptr;
  if (params.permutation != nullptr) {
    whole.x = MatrixView(unpacked + UnpackedBytes(desc), desc.activation,
                         params.x.rows(), desc.k);
    INLAY_RETURN_IF_ERROR(
        RunGatherColumns(params.x, params.permutation, whole.x, stream));
  }
  const int64_t rows = UnpackedRows(desc);
  for (int64_t first = 0; first < desc.n; first += rows) {
    GemmDesc slice = desc;
    slice.n = std::min(rows, desc.n - first);
    slice.weight = desc.activation;
    slice.permuted = false;
    INLAY_RETURN_IF_ERROR(RunUnpackQuantised(
        matrix, params.w.data, first, slice.n, slice.weight, unpacked, stream));
    GemmParams part = ColumnsOfCall(whole, first, slice.n);
    part.w = MatrixView(unpacked, slice.weight, slice.n, desc.k);
    INLAY_RETURN_IF_ERROR(cublas.Run(slice, part, stream));
  }
  return absl::OkStatus();
}

// As many rows of x at a time as the kernel takes.
absl::Status RunProducts(const GemmDesc& desc, const GemmParams& params,
                         CudaStream& stream) {
  const QuantForm form = QuantFormOf(desc.weight);
  const int64_t rows = params.x.rows();
  const QuantPlan plan = PlanQuantised(form, desc.n, desc.k, stream.num_sms());
  if (plan.stages == 0) return RunQuantisedPlain(desc, params, form, stream);
  for (int64_t first = 0; first < rows; first += kMostQuantRows) {
    const int64_t m = std::min<int64_t>(kMostQuantRows, rows - first);
    INLAY_RETURN_IF_ERROR(RunQuantisedSm90(desc, RowsOfCall(params, first, m),
                                           form, plan, stream));
  }
  return absl::OkStatus();
}

// x with its columns in w's order.
absl::StatusOr<GemmParams> Gathered(const GemmDesc& desc,
                                    const GemmParams& params,
                                    CudaStream& stream) {
  GemmParams gathered = params;
  if (params.permutation == nullptr) return gathered;
  gathered.permutation = nullptr;
  gathered.x = MatrixView(static_cast<std::byte*>(params.workspace),
                          desc.activation, params.x.rows(), desc.k);
  INLAY_RETURN_IF_ERROR(
      RunGatherColumns(params.x, params.permutation, gathered.x, stream));
  return gathered;
}

// A plan for `rows` of x, without places where none serves. Where the batch
// must not tell, what ServesInOneOrder leaves (q2_k) goes through one cut of w.
StreamedPlan StreamedPlanOf(const GemmDesc& desc, const GemmParams& params,
                            const CudaStream& stream) {
  const QuantForm form = QuantFormOf(desc.weight);
  const int64_t rows = params.x.rows();
  const int64_t most =
      WideRoundsTooMuch(form) ? kMostProductRows : kMostStreamedRows;
  if (stream.sm() != kProductSm || !StreamedTakesColumns(desc.k) ||
      !(desc.permuted || WideTakes(params.x)) ||
      !(desc.batch_invariant || (rows > kMostFewRows && rows <= most))) {
    return {};
  }
  const StreamedPlan plan =
      PlanStreamed(form, desc.n, desc.k,
                   desc.batch_invariant ? 2 : StreamedTilesOfX(form, rows),
                   stream.num_sms());
  if (!desc.batch_invariant || rows > 8) return plan;
  StreamedPlan few = plan;
  few.x_tiles = 1;
  const bool fits =
      FitStreamedPlan(form, desc.n, desc.k, stream.num_sms(), few);
  return fits && few.shares == plan.shares ? few : plan;
}

// `most` rows of x at a time by one plan.
absl::Status RunParts(const GemmDesc& desc, const GemmParams& params,
                      const StreamedPlan& plan, CudaStream& stream) {
  const QuantForm form = QuantFormOf(desc.weight);
  const int64_t rows = params.x.rows();
  const int64_t most = int64_t{8} * plan.x_tiles;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t m = std::min(most, rows - first);
    INLAY_RETURN_IF_ERROR(RunQuantisedStreamed(
        desc, RowsOfCall(params, first, m), form, plan, stream));
  }
  return absl::OkStatus();
}

absl::Status RunStreamed(const GemmDesc& desc, const GemmParams& params,
                         const StreamedPlan& plan, CudaStream& stream) {
  INLAY_ASSIGN_OR_RETURN(const GemmParams gathered,
                         Gathered(desc, params, stream));
  return RunParts(desc, gathered, plan, stream);
}

// Plans with one order of sums for all numbers of rows, of weights rounded to
// x's type.
bool ServesInOneOrder(const GemmDesc& desc, const GemmParams& params,
                      const CudaStream& stream, StreamedPlans& plans) {
  return desc.batch_invariant && stream.sm() == kProductSm &&
         StreamedTakesColumns(desc.k) &&
         (desc.permuted || WideTakes(params.x)) &&
         PlanStreamedInOneOrder(QuantFormOf(desc.weight), desc.n, desc.k,
                                stream.num_sms(), plans);
}

absl::Status RunInOneOrder(const GemmDesc& desc, const GemmParams& params,
                           const StreamedPlans& plans, CudaStream& stream) {
  INLAY_ASSIGN_OR_RETURN(const GemmParams gathered,
                         Gathered(desc, params, stream));
  const int64_t rows = params.x.rows();
  const auto parts = static_cast<double>((rows + 31) / 32);
  const double part = 5.0 + static_cast<double>(desc.n * desc.k) / 4.2e6;
  if (rows > 32 &&
      ManyRowsPackedMicroseconds(desc, rows, stream.num_sms()) < parts * part) {
    return RunManyRowsPacked(desc, gathered, QuantFormOf(desc.weight),
                             plans.For(rows), stream);
  }
  return RunParts(desc, gathered, plans.For(rows), stream);
}

bool ServesWide(const GemmDesc& desc, const GemmParams& params,
                const CudaStream& stream) {
  const int64_t rows = params.x.rows();
  return !desc.batch_invariant && rows >= kLeastWideRows &&
         rows <= kMostWideRows && stream.sm() == kProductSm &&
         !WideRoundsTooMuch(QuantFormOf(desc.weight)) &&
         (desc.permuted || WideTakes(params.x));
}

absl::Status RunWide(const GemmDesc& desc, const GemmParams& params,
                     CudaStream& stream) {
  INLAY_ASSIGN_OR_RETURN(const GemmParams gathered,
                         Gathered(desc, params, stream));
  const QuantForm form = QuantFormOf(desc.weight);
  return RunQuantisedWide(
      desc, gathered, form,
      PlanWide(form, desc.n, desc.k, params.x.rows(), stream.num_sms()),
      stream);
}

size_t PackedBytes(const GemmDesc& desc) {
  return static_cast<size_t>(
      QuantBytes(QuantFormOf(desc.weight), desc.n, desc.k));
}

void Pack(const GemmDesc& desc, const std::byte* rows, int64_t first,
          int64_t count, std::byte* packed) {
  PackQuantised(QuantMatrix(desc.weight, desc.k), rows, first, count, packed);
}

absl::Status PackOnDevice(const GemmDesc& desc, const std::byte* rows,
                          int64_t first, int64_t count, std::byte* packed,
                          Stream& stream) {
  return RunPackQuantised(QuantMatrix(desc.weight, desc.k), rows, first, count,
                          packed, CudaStream::Of(stream));
}

constexpr WeightPacking<GemmDesc> kPacking = {kQuantRows, PackedBytes, Pack,
                                              PackOnDevice};

}  // namespace

const WeightPacking<GemmDesc>* GemmCudaPacking(const GemmDesc&) {
  return &kPacking;
}

size_t GemmCudaQuantisedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  if (!Is16Bit(desc.activation)) return 0;
  const size_t gathered = GatheredBytes(desc, max_rows);
  if (desc.batch_invariant || max_rows <= kMostProductRows) return gathered;
  return CublasLt::kWorkspaceBytes + UnpackedBytes(desc) + gathered;
}

absl::Status RunGemmCudaQuantised(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const int64_t rows = params.x.rows();
  if (rows == 0) return absl::OkStatus();
  if (!Is16Bit(desc.activation)) {
    return RunQuantisedPlain(desc, params, QuantFormOf(desc.weight), cuda);
  }
  StreamedPlans plans;
  if (ServesInOneOrder(desc, params, cuda, plans)) {
    return RunInOneOrder(desc, params, plans, cuda);
  }
  const StreamedPlan streamed = StreamedPlanOf(desc, params, cuda);
  if (streamed.places > 0) return RunStreamed(desc, params, streamed, cuda);
  if (ServesWide(desc, params, cuda)) return RunWide(desc, params, cuda);
  if (!desc.batch_invariant && rows > kMostProductRows) {
    const absl::StatusOr<CublasLt*> cublas = CublasLtOf(cuda);
    if (cublas.ok()) {
      const absl::Status status = RunUnpacked(desc, params, **cublas, cuda);
      // Odd strides of 16-bit types.
      if (!absl::IsUnimplemented(status)) return status;
    }
  }
  if (cuda.sm() == kProductSm) return RunProducts(desc, params, cuda);
  INLAY_ASSIGN_OR_RETURN(const GemmParams gathered,
                         Gathered(desc, params, cuda));
  const QuantForm form = QuantFormOf(desc.weight);
  return WideTakes(gathered.x) ? RunQuantisedMma(desc, gathered, form, cuda)
                               : RunQuantisedPlain(desc, gathered, form, cuda);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
