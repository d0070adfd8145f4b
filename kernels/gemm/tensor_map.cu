#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "absl/strings/str_format.h"
#include "kernels/gemm/tensor_map.h"
#include "memory/device/cuda_status.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<PFN_cuTensorMapEncodeTiled_v12000> Encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  INLAY_RETURN_IF_ERROR(CudaStatus(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                       12000, cudaEnableDefault, &found),
      "gemm: finding cuTensorMapEncodeTiled in the driver"));
  if (function == nullptr) {
    return absl::FailedPreconditionError(
        "gemm: the driver has no cuTensorMapEncodeTiled; expected one of CUDA "
        "12 or later");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

absl::StatusOr<CUtensorMap> Encode(const TensorView& matrix, uint32_t rank,
                                   const cuuint64_t* sizes,
                                   const cuuint64_t* strides,
                                   const cuuint32_t* box) {
  INLAY_ASSIGN_OR_RETURN(const auto encode, Encoder());
  constexpr cuuint32_t kStep[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, rank, matrix.data, sizes, strides,
      box, kStep, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  return absl::InternalError(absl::StrFormat(
      "gemm: describing a matrix of %d by %d, rows %d bytes apart: error %d",
      matrix.rows(), matrix.cols(), matrix.row_stride_bytes,
      static_cast<int>(result)));
}

}  // namespace

absl::StatusOr<CUtensorMap> MapOfWeights(const TensorView& w, int rows,
                                         int halves, int columns) {
  const auto a_half = static_cast<cuuint64_t>(w.rows() / halves);
  const cuuint64_t stride = w.row_stride_bytes;
  const cuuint64_t sizes[] = {kMapColumns, a_half,
                              static_cast<cuuint64_t>(halves),
                              static_cast<cuuint64_t>(w.cols() / kMapColumns)};
  const cuuint64_t strides[] = {stride, a_half * stride, kMapColumns * 2};
  const cuuint32_t box[] = {kMapColumns, static_cast<cuuint32_t>(rows),
                            static_cast<cuuint32_t>(halves),
                            static_cast<cuuint32_t>(columns)};
  return Encode(w, 4, sizes, strides, box);
}

absl::StatusOr<CUtensorMap> MapOfColumns(const TensorView& x, int rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(x.cols()),
                              static_cast<cuuint64_t>(x.rows())};
  const cuuint64_t strides[] = {x.row_stride_bytes};
  const cuuint32_t box[] = {kMapColumns, static_cast<cuuint32_t>(rows)};
  return Encode(x, 2, sizes, strides, box);
}

}  // namespace inlay
