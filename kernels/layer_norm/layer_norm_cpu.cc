// layer_norm, the scalar reference row: sums in double, the variance in a
// second pass.
#include <cmath>

#include "kernels/layer_norm/layer_norm.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

void NormalizeRow(const LayerNormDesc& desc, const LayerNormParams& params,
                  int64_t row) {
  const float* x = params.x.row<float>(row);
  float* y = params.y.row<float>(row);
  const auto width = static_cast<double>(desc.width);
  double sum = 0.0;
  for (int64_t i = 0; i < desc.width; ++i) sum += x[i];
  const double mean = sum / width;
  double squares = 0.0;
  for (int64_t i = 0; i < desc.width; ++i) {
    squares += (x[i] - mean) * (x[i] - mean);
  }
  const double factor = 1.0 / std::sqrt(squares / width + params.epsilon);
  for (int64_t i = 0; i < desc.width; ++i) {
    const double weight = params.weight != nullptr ? params.weight[i] : 1.0;
    const double bias = params.bias != nullptr ? params.bias[i] : 0.0;
    y[i] = static_cast<float>((x[i] - mean) * factor * weight + bias);
  }
}

}  // namespace

absl::Status RunLayerNormCpuScalar(const LayerNormDesc& desc,
                                   const LayerNormParams& params,
                                   Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          NormalizeRow(desc, params, row);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
