// xielu, the scalar reference row.
#include <algorithm>
#include <cmath>

#include "kernels/activation/xielu.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// NaN stays.
float Apply(const XieluNumbers& numbers, float x) {
  if (x > 0.0f) return x * (numbers.alpha_p * x + numbers.beta);
  const double cut = std::min(x, numbers.eps);
  const double curve = std::expm1(cut) - x;
  return static_cast<float>(numbers.alpha_n * curve + double{numbers.beta} * x);
}

}  // namespace

absl::Status RunXieluCpuScalar(const XieluDesc& desc, const XieluParams& params,
                               Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const float* x = params.x.row<float>(row);
          float* y = params.y.row<float>(row);
          for (int64_t i = 0; i < desc.width; ++i) {
            y[i] = Apply(params.numbers, x[i]);
          }
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
