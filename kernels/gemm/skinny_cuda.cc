// Which products the kernel for some dozen rows serves, by itself and beside
// that for many rows with the same sums.
#if INLAY_HAS_CUDA

#include "kernels/gemm/skinny_cuda.h"

#include <algorithm>

#include "kernels/gemm/many_rows_cuda.h"
#include "memory/status.h"

namespace inlay {

bool SkinnyTakes(const GemmDesc& desc, const GemmParams& params,
                 const CudaStream& stream) {
  const auto aligned = [](const TensorView& view) {
    return (reinterpret_cast<uintptr_t>(view.data) | view.row_stride_bytes) %
               16 ==
           0;
  };
  return stream.sm() == 90 && desc.weight != DType::kF32 &&
         desc.activation == desc.weight && desc.k % kBulkColumns == 0 &&
         aligned(params.x) && aligned(params.w);
}

// Chosen by measurement on an H200 (CUDA.md). Alone this kernel is the faster
// one for small matrices from one row on; in a model, where it begins while
// others end, from more than four. Where K is so long that gemv shares it among
// four blocks, whose clusters do not fill the chip, it is faster from one row.
bool SkinnyServes(const GemmDesc& desc, const GemmParams& params,
                  const CudaStream& stream) {
  const int64_t rows = params.x.rows();
  constexpr int64_t kLargeBytes = int64_t{128} << 20;
  const bool large = 2 * desc.n * desc.k > kLargeBytes;
  const bool fills = PlanGemv(desc.n, desc.k, stream.num_sms()).cluster == 2;
  const int64_t rows_of_gemv = fills ? (large ? kGemvRows : kGemvRows / 2) : 0;
  return rows > rows_of_gemv && rows <= kMostSkinnyRows &&
         SkinnyTakes(desc, params, stream);
}

absl::Status RunGemmInOneOrder(const GemmDesc& desc, const GemmParams& params,
                               CudaStream& stream) {
  const int64_t rows = params.x.rows();
  const int64_t parts = (rows + kMostSkinnyRows - 1) / kMostSkinnyRows;
  // A part reads all weights: at the memory's rate, from the cache too.
  const double part = 1.5 + 2.0 * static_cast<double>(desc.n * desc.k) / 4.1e6;
  if (parts > 1 && ManyRowsMicroseconds(desc, rows, stream.num_sms()) <
                       part * static_cast<double>(parts)) {
    return RunManyRowsGemm(desc, params, stream);
  }
  for (int64_t first = 0; first < rows; first += kMostSkinnyRows) {
    const int64_t count = std::min<int64_t>(rows - first, kMostSkinnyRows);
    GemmParams some = params;
    some.x = params.x.RowSlice(first, count);
    some.y = params.y.RowSlice(first, count);
    if (!params.residual.empty()) {
      some.residual = params.residual.RowSlice(first, count);
    }
    INLAY_RETURN_IF_ERROR(RunSkinnyGemm(desc, some, {}, stream));
  }
  return absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
