// hyper_mix and hyper_spread, the scalar reference rows: sums in double.
#include <cmath>

#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/hyper_connection/hyper_weights.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunHyperMixCpuScalar(const HyperMixDesc& desc,
                                  const HyperMixParams& params,
                                  Stream& stream) {
  const int n = desc.num_streams;
  const auto run_row = [&](int64_t row) {
    const float* h = params.streams.row<float>(row);
    double squares = 0.0;
    for (int64_t i = 0; i < n * desc.width; ++i) squares += double{h[i]} * h[i];
    const double mean = squares / static_cast<double>(n * desc.width);
    double a[kMaxHyperStreams];
    HyperWeights(desc, params, params.ProductsOf(desc, row),
                 1.0 / std::sqrt(mean + desc.norm_epsilon), a,
                 params.WeightsOf(desc, row));
    float* x = params.x.row<float>(row);
    for (int64_t i = 0; i < desc.width; ++i) {
      double sum = 0.0;
      for (int j = 0; j < n; ++j) sum += a[j] * h[j * desc.width + i];
      x[i] = static_cast<float>(sum);
    }
  };
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) run_row(row);
      });
  return absl::OkStatus();
}

absl::Status RunHyperSpreadCpuScalar(const HyperSpreadDesc& desc,
                                     const HyperSpreadParams& params,
                                     Stream& stream) {
  const int n = desc.num_streams;
  const auto run_row = [&](int64_t row) {
    const float* y = params.y.row<float>(row);
    const float* b = params.weights + row * desc.num_weights();
    const float* c = b + n;
    float* h = params.streams.row<float>(row);
    for (int64_t i = 0; i < desc.width; ++i) {
      double sums[kMaxHyperStreams];
      for (int k = 0; k < n; ++k) {
        sums[k] = double{b[k]} * y[i];
        if (desc.independent) sums[k] += h[k * desc.width + i];
        for (int j = 0; !desc.independent && j < n; ++j) {
          sums[k] += double{c[j * n + k]} * h[j * desc.width + i];
        }
      }
      for (int k = 0; k < n; ++k) {
        h[k * desc.width + i] = static_cast<float>(sums[k]);
      }
    }
  };
  stream.thread_pool()->ParallelFor(
      params.y.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) run_row(row);
      });
  return absl::OkStatus();
}

}  // namespace inlay
