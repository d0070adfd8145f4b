// head_scale on CPU, the only row: a product an element.
#include <cmath>

#include "kernels/head_scale/head_scale.h"
#include "memory/device/thread_pool.h"

namespace inlay {

absl::Status RunHeadScaleCpu(const HeadScaleDesc& desc,
                             const HeadScaleParams& params, Stream& stream) {
  const auto scale_row = [&](int64_t row) {
    const float log_keys =
        std::log(static_cast<float>(int64_t{params.positions[row]} + 1));
    float* x = params.x.row<float>(row);
    for (int h = 0; h < desc.num_heads; ++h, x += desc.head_dim) {
      const float factor = params.scale[h] * log_keys + params.bias[h];
      for (int d = 0; d < desc.head_dim; ++d) x[d] *= factor;
    }
  };
  stream.thread_pool()->ParallelFor(
      params.x.rows(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) scale_row(row);
      });
  return absl::OkStatus();
}

}  // namespace inlay
