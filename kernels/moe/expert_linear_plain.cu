// expert_linear on CUDA for what the tensor cores do not serve: float32, widths
// and addresses of any kind.
//
// Mapping: a warp an output feature, kWarps a block, and up to kRows rows of
// one expert; the lanes share K. Accumulation: float32 a lane, then a fixed
// tree; the same for any number of rows. No shared memory, no barriers.
// Roofline: the weights of the experts that are asked for over the copy
// bandwidth, read once for every kRows slots.
#include "kernels/cuda_row.cuh"
#include "kernels/moe/expert_items.cuh"
#include "kernels/moe/expert_linear_cuda.h"

namespace inlay {
namespace {

constexpr int kWarps = 8;
constexpr int kRows = 8;

template <typename W, typename X, typename Y, int kVector>
__global__ void ExpertPlain(CudaMatrix<const X> x,
                            const __grid_constant__ ExpertBases w,
                            const float* bias, CudaMatrix<Y> y,
                            ExpertItems items, int64_t n, int64_t k) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t blocks_n = (n + kWarps - 1) / kWarps;
  const int64_t column = blockIdx.x % blocks_n * kWarps + threadIdx.x / 32;
  const ExpertItem item =
      FindExpertItem<kRows>(items, static_cast<int>(blockIdx.x / blocks_n));
  if (column >= n || item.rows == 0) return;
  const W* weights = reinterpret_cast<const W*>(w.Of(item.expert)) + column * k;
  const X* rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x.row(
        ExpertItem::Source(items, item.Slot(items, r < item.rows ? r : 0)));
  }
  float sums[kRows] = {};
  for (int64_t i = threadIdx.x % 32 * kVector; i < k; i += 32 * kVector) {
    float a[kVector];
    LoadFloats<kVector>(weights + i, a);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= item.rows) break;
      float b[kVector];
      LoadFloats<kVector>(rows[r] + i, b);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[r] = fmaf(a[j], b[j], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= item.rows) break;
    float sum = WarpSum(sums[r]);
    if (threadIdx.x % 32 != 0) continue;
    if (bias != nullptr) sum += bias[item.expert * n + column];
    y.row(item.Slot(items, r))[column] = FromFloat<Y>(sum);
  }
}

template <typename W, typename X, typename Y>
absl::Status Launch(const ExpertLinearDesc& desc,
                    const ExpertLinearParams& params, CudaStream& stream) {
  const GemmDesc& gemm = desc.gemm;
  const ExpertItems items(desc, params, kRows);
  const bool vector = IsCudaVector(gemm.k, {&params.x}) &&
                      IsCudaVector(params.w.base) &&
                      params.w.stride_bytes % 16 == 0;
  const auto kernel =
      vector ? ExpertPlain<W, X, Y, kCudaVector> : ExpertPlain<W, X, Y, 1>;
  const int64_t blocks = (gemm.n + kWarps - 1) / kWarps * items.count;
  return LaunchCuda("expert_linear", stream, {blocks, 32 * kWarps}, kernel,
                    CudaMatrix<const X>(params.x), ExpertBases(params.w),
                    params.bias, CudaMatrix<Y>(params.y), items, gemm.n,
                    gemm.k);
}

}  // namespace

absl::Status RunExpertLinearPlain(const ExpertLinearDesc& desc,
                                  const ExpertLinearParams& params,
                                  CudaStream& stream) {
  return WithFloatType(desc.gemm.weight, [&](auto w) {
    return WithFloatType(desc.gemm.activation, [&](auto x) {
      using W = decltype(w);
      using X = decltype(x);
      return desc.gemm.output == desc.gemm.activation
                 ? Launch<W, X, X>(desc, params, stream)
                 : Launch<W, X, float>(desc, params, stream);
    });
  });
}

}  // namespace inlay
