// Parts of a product: what rows that cut a call up hand on.
#ifndef INLAY_KERNELS_GEMM_GEMM_PARTS_H_
#define INLAY_KERNELS_GEMM_GEMM_PARTS_H_

#include <cstdint>

#include "kernels/gemm/gemm.h"

namespace inlay {

// Columns [first, first + count) of a matrix of plain elements.
inline TensorView ColumnSlice(const TensorView& view, int64_t first,
                              int64_t count) {
  TensorView columns = view;
  columns.data += RowBytes(view.dtype, static_cast<size_t>(first));
  columns.rank = 2;
  columns.dims = {view.rows(), count};
  return columns;
}

// The rows [first, first + count) of x, residual and y.
inline GemmParams RowsOfCall(const GemmParams& params, int64_t first,
                             int64_t count) {
  GemmParams part = params;
  part.x = params.x.RowSlice(first, count);
  part.y = params.y.RowSlice(first, count);
  if (!params.residual.empty()) {
    part.residual = params.residual.RowSlice(first, count);
  }
  return part;
}

// The columns [first, first + count) of bias, residual and y; w is as it was.
inline GemmParams ColumnsOfCall(const GemmParams& params, int64_t first,
                                int64_t count) {
  GemmParams part = params;
  if (params.bias != nullptr) part.bias = params.bias + first;
  if (!params.residual.empty()) {
    part.residual = ColumnSlice(params.residual, first, count);
  }
  part.y = ColumnSlice(params.y, first, count);
  return part;
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMM_PARTS_H_
