// elementwise, the scalar reference row.
#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

void RunRow(const ElementwiseDesc& desc, const ElementwiseParams& params,
            int64_t row) {
  float* y = params.y.row<float>(row);
  switch (desc.function) {
    case Elementwise::kAdd: {
      const float* x = params.x.row<float>(row);
      for (int64_t i = 0; i < desc.width; ++i) y[i] += x[i];
      return;
    }
    case Elementwise::kScale:
      for (int64_t i = 0; i < desc.width; ++i) y[i] *= params.value;
      return;
    case Elementwise::kSoftcap:
      for (int64_t i = 0; i < desc.width; ++i) {
        y[i] = params.value * std::tanh(y[i] / params.value);
      }
      return;
    case Elementwise::kClamp:
      for (int64_t i = 0; i < desc.width; ++i) {
        y[i] = std::clamp(y[i], -params.value, params.value);
      }
      return;
    case Elementwise::kSigmoid:
      for (int64_t i = 0; i < desc.width; ++i) {
        y[i] = static_cast<float>(1.0 / (1.0 + std::exp(-double{y[i]})));
      }
      return;
  }
}

}  // namespace

absl::Status RunElementwiseCpuScalar(const ElementwiseDesc& desc,
                                     const ElementwiseParams& params,
                                     Stream& stream) {
  stream.thread_pool()->ParallelFor(
      params.y.rows(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) RunRow(desc, params, row);
      });
  return absl::OkStatus();
}

}  // namespace inlay
