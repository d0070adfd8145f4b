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

// run(n, apart, count) for the rows n, n + apart, .. of w, count of them, that
// are multiplied at once, until all of [begin, end) are. A thread reads them as
// `streams` streams, each of consecutive rows: rows side by side would be
// streams that end after a few kilobytes, and memory is idle until the
// processor's prefetchers have found the next ones.
template <typename Run>
void ForEachInStreams(int64_t begin, int64_t end, int64_t streams, Run run) {
  const int64_t apart = (end - begin) / streams;
  for (int64_t n = begin; n < begin + apart; ++n) run(n, apart, streams);
  const int64_t rest = begin + apart * streams;
  if (rest < end) run(rest, 1, end - rest);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_GEMM_PARTS_H_
