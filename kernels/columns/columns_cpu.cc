// columns, the scalar row, the only one: copies.
#include <algorithm>

#include "kernels/columns/columns.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunColumnsCpu(const ColumnsDesc&, const ColumnsParams& params,
                           Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 8, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const float* x = params.x.row<const float>(row);
          float* y = params.y.row<float>(row);
          for (const ColumnRun& run : params.runs) {
            y = std::copy_n(x + run.first, run.count, y);
          }
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
