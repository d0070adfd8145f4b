#include "kernels/cuda_tensor_map.h"
#include "kernels/gemm/tensor_map.h"

namespace inlay {
namespace {

absl::StatusOr<CUtensorMap> Encode(const char* what, const TensorView& matrix,
                                   const TensorBoxes& boxes) {
  return EncodeTensorMap(what, matrix.data, CU_TENSOR_MAP_DATA_TYPE_UINT16,
                         CU_TENSOR_MAP_SWIZZLE_128B, boxes);
}

}  // namespace

absl::StatusOr<CUtensorMap> MapOfWeights(const TensorView& w, int rows,
                                         int halves, int columns) {
  const auto a_half = static_cast<cuuint64_t>(w.rows() / halves);
  const cuuint64_t stride = w.row_stride_bytes;
  return Encode(
      "weights", w,
      {4,
       {kMapColumns, a_half, static_cast<cuuint64_t>(halves),
        static_cast<cuuint64_t>(w.cols() / kMapColumns)},
       {stride, a_half * stride, kMapColumns * 2},
       {kMapColumns, static_cast<cuuint32_t>(rows),
        static_cast<cuuint32_t>(halves), static_cast<cuuint32_t>(columns)}});
}

absl::StatusOr<CUtensorMap> MapOfColumns(const TensorView& x, int rows) {
  return Encode(
      "x", x,
      {2,
       {static_cast<cuuint64_t>(x.cols()), static_cast<cuuint64_t>(x.rows())},
       {x.row_stride_bytes},
       {kMapColumns, static_cast<cuuint32_t>(rows)}});
}

}  // namespace inlay
