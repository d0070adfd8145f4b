// What every CPU row of gemm does with a sum.
#ifndef INLAY_KERNELS_GEMM_FINISH_H_
#define INLAY_KERNELS_GEMM_FINISH_H_

#include <cstdint>

#include "kernels/gemm/gemm.h"

namespace inlay {

// y[m, n0 .. n0 + count) = sums + bias + residual, which may be y.
inline void FinishGemmRow(const GemmParams& params, int64_t m, int64_t n0,
                          int64_t count, const float* sums) {
  float* y = params.y.row<float>(m) + n0;
  const float* residual =
      params.residual.empty() ? nullptr : params.residual.row<float>(m) + n0;
  for (int64_t i = 0; i < count; ++i) {
    float value = sums[i];
    if (params.bias != nullptr) value += params.bias[n0 + i];
    if (residual != nullptr) value += residual[i];
    y[i] = value;
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_FINISH_H_
