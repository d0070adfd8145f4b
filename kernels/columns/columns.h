// columns: a matrix's columns in another order, some of them left out: what a
// projection gives interleaved by head (q, k, v and gates of head 0, then of
// head 1 ..) becomes one matrix of each.
#ifndef INLAY_KERNELS_COLUMNS_COLUMNS_H_
#define INLAY_KERNELS_COLUMNS_COLUMNS_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct ColumnsDesc {
  DType activation = DType::kF32;
};

// `count` columns that stay side by side.
struct ColumnRun {
  int32_t first = 0;
  int32_t count = 0;
};

struct ColumnsParams {
  TensorView x;  // rows may be strided
  // Of x, one after another the columns of y; on the host for any device.
  absl::Span<const ColumnRun> runs;
  TensorView y;  // must not overlap x
};

using ColumnsRow = KernelRow<ColumnsDesc, ColumnsParams>;
absl::Span<const ColumnsRow> ColumnsTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_COLUMNS_COLUMNS_H_
