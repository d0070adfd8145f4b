// gemm, the scalar reference row: one dot product at a time, summed in double.
#include "kernels/cpu_float.h"
#include "kernels/gemm/gemm.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

float Output(const GemmDesc& desc, const GemmParams& params, int64_t m,
             int64_t n) {
  const float* x = params.x.row<float>(m);
  const std::byte* w = params.w.row<std::byte>(n);
  double sum = 0.0;
  for (int64_t k = 0; k < desc.k; ++k) {
    sum += static_cast<double>(x[k]) * LoadFloat(desc.weight, w, k);
  }
  float y = static_cast<float>(sum);
  if (params.bias != nullptr) y += params.bias[n];
  if (!params.residual.empty()) y += params.residual.row<float>(m)[n];
  return y;
}

}  // namespace

absl::Status RunGemmCpuScalar(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream) {
  const int64_t rows = params.x.rows();
  stream.thread_pool()->ParallelFor(
      rows * desc.n, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t m = i / desc.n;
          const int64_t n = i % desc.n;
          params.y.row<float>(m)[n] = Output(desc, params, m, n);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
