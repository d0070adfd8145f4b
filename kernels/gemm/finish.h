// What every CPU row of gemm does with a sum.
#ifndef INLAY_KERNELS_GEMM_FINISH_H_
#define INLAY_KERNELS_GEMM_FINISH_H_

#include <cstdint>
#include <cstring>

#include "kernels/gemm/gemm.h"

namespace inlay {

// y[m, n0 .. n0 + count) = sums + bias + residual, which may be y. A loop for
// each case: compilers take no vectors where one asks at every element.
inline void FinishGemmRow(const GemmParams& params, int64_t m, int64_t n0,
                          int64_t count, const float* sums) {
  float* y = params.y.row<float>(m) + n0;
  if (params.bias == nullptr && params.residual.empty()) {
    std::memcpy(y, sums, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  if (params.bias != nullptr) {
    const float* bias = params.bias + n0;
    if (params.residual.empty()) {
      for (int64_t i = 0; i < count; ++i) y[i] = sums[i] + bias[i];
    } else {
      const float* residual = params.residual.row<float>(m) + n0;
      for (int64_t i = 0; i < count; ++i) {
        y[i] = sums[i] + bias[i] + residual[i];
      }
    }
    return;
  }
  const float* residual = params.residual.row<float>(m) + n0;
  for (int64_t i = 0; i < count; ++i) y[i] = sums[i] + residual[i];
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_FINISH_H_
