// sparse_gate, the scalar reference row: sums in double.
#include <cmath>

#include "kernels/activation/sparse_gate.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunSparseGateCpuScalar(const SparseGateDesc& desc,
                                    const SparseGateParams& params,
                                    Stream& stream) {
  const auto count = static_cast<double>(desc.width);
  const auto run_row = [&](int64_t row) {
    float* x = params.x.row<float>(row);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < desc.width; ++i) sum += x[i];
    const double mean = sum / count;
    for (int64_t i = 0; i < desc.width; ++i) {
      squares += (x[i] - mean) * (x[i] - mean);
    }
    const double cut = mean + params.deviations * std::sqrt(squares / count);
    for (int64_t i = 0; i < desc.width; ++i) {
      const double left = x[i] - cut;
      x[i] = left <= 0.0 ? 0.0f : static_cast<float>(left);
    }
  };
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) run_row(row);
      });
  return absl::OkStatus();
}

}  // namespace inlay
