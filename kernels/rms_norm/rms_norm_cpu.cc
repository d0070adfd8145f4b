// rms_norm, the scalar reference row: sums in double.
#include <cmath>

#include "kernels/rms_norm/rms_norm.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

void NormalizeRow(const RmsNormDesc& desc, const RmsNormParams& params,
                  int64_t row) {
  const float* x = params.x.row<float>(row);
  float* y = params.y.row<float>(row);
  double squares = 0.0;
  for (int64_t i = 0; i < desc.width; ++i) {
    squares += static_cast<double>(x[i]) * x[i];
  }
  const double mean = squares / static_cast<double>(desc.width);
  const auto factor =
      static_cast<float>(1.0 / std::sqrt(mean + params.epsilon));
  for (int64_t i = 0; i < desc.width; ++i) {
    const float weight = params.weight != nullptr ? params.weight[i] : 1.0f;
    y[i] = x[i] * factor * weight;
  }
}

}  // namespace

absl::Status RunRmsNormCpuScalar(const RmsNormDesc& desc,
                                 const RmsNormParams& params, Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          NormalizeRow(desc, params, row);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
