// gemm, the scalar reference row: one dot product at a time, summed in double.
#include "kernels/cpu_float.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/quant.h"
#include "memory/device/thread_pool.h"

namespace inlay {
namespace {

// x[m, i] as column i of w meets it.
struct Input {
  const float* x;
  const int32_t* permutation;

  double operator[](int64_t i) const {
    return static_cast<double>(x[permutation == nullptr ? i : permutation[i]]);
  }
};

double Dot(const GemmDesc& desc, const Input& x, const std::byte* w) {
  double sum = 0.0;
  for (int64_t k = 0; k < desc.k; ++k) {
    sum += x[k] * LoadFloat(desc.weight, w, k);
  }
  return sum;
}

double DotBlocks(const BlockCodec& codec, int64_t k, const Input& x,
                 const std::byte* w) {
  const FormatInfo& format = GetFormatInfo(codec.dtype);
  float values[kMaxBlockElements];
  double sum = 0.0;
  for (int64_t k0 = 0; k0 < k; k0 += format.block_elements) {
    codec.decode(w, 1, values);
    w += format.block_bytes;
    for (int64_t i = 0; i < format.block_elements; ++i) {
      sum += x[k0 + i] * static_cast<double>(values[i]);
    }
  }
  return sum;
}

float Output(const GemmDesc& desc, const BlockCodec* codec,
             const GemmParams& params, int64_t m, int64_t n) {
  const Input x = {params.x.row<float>(m), params.permutation};
  const std::byte* w = params.w.row<std::byte>(n);
  const double sum =
      codec == nullptr ? Dot(desc, x, w) : DotBlocks(*codec, desc.k, x, w);
  float y = static_cast<float>(sum);
  if (params.bias != nullptr) y += params.bias[n];
  if (!params.residual.empty()) y += params.residual.row<float>(m)[n];
  return y;
}

}  // namespace

absl::Status RunGemmCpuScalar(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream) {
  const int64_t rows = params.x.rows();
  const BlockCodec* codec = FindBlockCodec(desc.weight);
  stream.thread_pool()->ParallelFor(
      rows * desc.n, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t m = i / desc.n;
          const int64_t n = i % desc.n;
          params.y.row<float>(m)[n] = Output(desc, codec, params, m, n);
        }
      });
  return absl::OkStatus();
}

}  // namespace inlay
