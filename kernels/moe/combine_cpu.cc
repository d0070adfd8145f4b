// moe_combine, the scalar reference row: sums in double.
#include <cmath>

#include "kernels/moe/combine.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

void CombineRow(const MoeCombineDesc& desc, const MoeCombineParams& params,
                int64_t t) {
  const double gate =
      desc.gated ? 1.0 / (1.0 + std::exp(-double{*params.gate.row<float>(t)}))
                 : 1.0;
  float* y = params.y.row<float>(t);
  for (int64_t i = 0; i < desc.width; ++i) {
    double sum = 0.0;
    for (int64_t slot = t * desc.top_k; slot < (t + 1) * desc.top_k; ++slot) {
      sum += double{params.weights[slot]} * params.x.row<float>(slot)[i];
    }
    if (desc.shared) sum += gate * params.shared.row<float>(t)[i];
    if (!params.residual.empty()) sum += params.residual.row<float>(t)[i];
    y[i] = static_cast<float>(sum);
  }
}

}  // namespace

absl::Status RunMoeCombineCpuScalar(const MoeCombineDesc& desc,
                                    const MoeCombineParams& params,
                                    Stream& stream) {
  stream.thread_pool()->ParallelFor(params.y.rows(), 1,
                                    [&](int64_t begin, int64_t end) {
                                      for (int64_t t = begin; t < end; ++t)
                                        CombineRow(desc, params, t);
                                    });
  return absl::OkStatus();
}

}  // namespace inlay
