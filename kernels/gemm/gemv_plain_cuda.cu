// gemm on CUDA for what the tensor cores do not serve: float32, widths and
// addresses of any kind. And the start of a product: y = bias + residual.
//
// Mapping: a warp an output feature, kWarps a block; the lanes share K, vectors
// in turn, for up to kRows rows of x at once, which come from the first-level
// cache. Accumulation: float32 a lane, then a fixed tree; the same for any
// number of rows. Roofline: n k elements of w over the copy bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/gemm/gemv_cuda.h"

namespace inlay {
namespace {

constexpr int kWarps = 8;
constexpr int kRows = 8;

template <typename W, typename X, typename Y, int kVector>
__global__ void PlainGemv(CudaMatrix<const X> x, CudaMatrix<const W> w,
                          const float* bias, CudaMatrix<const Y> residual,
                          CudaMatrix<Y> y, int64_t rows, int64_t n, int64_t k) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t blocks_n = (n + kWarps - 1) / kWarps;
  const int64_t column = blockIdx.x % blocks_n * kWarps + threadIdx.x / 32;
  const int64_t first = blockIdx.x / blocks_n * kRows;
  if (column >= n) return;
  const W* weights = w.row(column);
  float sums[kRows] = {};
  for (int64_t i = threadIdx.x % 32 * kVector; i < k; i += 32 * kVector) {
    float a[kVector];
    LoadFloats<kVector>(weights + i, a);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= rows) break;
      float b[kVector];
      LoadFloats<kVector>(x.row(first + r) + i, b);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sums[r] = fmaf(a[j], b[j], sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= rows) break;
    float sum = WarpSum(sums[r]);
    if (threadIdx.x % 32 != 0) continue;
    if (bias != nullptr) sum += bias[column];
    if (residual.data != nullptr) {
      sum += ToFloat(residual.row(first + r)[column]);
    }
    y.row(first + r)[column] = FromFloat<Y>(sum);
  }
}

template <typename W, typename X, typename Y>
absl::Status Launch(const GemmDesc& desc, const GemmParams& params,
                    CudaStream& stream) {
  const int64_t rows = params.x.rows();
  const int64_t blocks =
      (desc.n + kWarps - 1) / kWarps * ((rows + kRows - 1) / kRows);
  const auto kernel = IsCudaVector(desc.k, {&params.x, &params.w})
                          ? PlainGemv<W, X, Y, kCudaVector>
                          : PlainGemv<W, X, Y, 1>;
  return LaunchCuda("gemv_plain", stream, {blocks, 32 * kWarps}, kernel,
                    CudaMatrix<const X>(params.x),
                    CudaMatrix<const W>(params.w), params.bias,
                    CudaMatrix<const Y>(params.residual),
                    CudaMatrix<Y>(params.y), rows, desc.n, desc.k);
}

template <typename Y>
__global__ void StartWithBias(const float* bias, CudaMatrix<const Y> residual,
                              CudaMatrix<Y> y, int64_t n, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t i = blockIdx.x % chunks * kCudaMapThreads + threadIdx.x;
  if (i >= n) return;
  float value = bias[i];
  if (residual.data != nullptr) value += ToFloat(residual.row(row)[i]);
  y.row(row)[i] = FromFloat<Y>(value);
}

}  // namespace

absl::Status RunGemvPlain(const GemmDesc& desc, const GemmParams& params,
                          CudaStream& stream) {
  return WithFloatType(desc.weight, [&](auto w) {
    return WithFloatType(desc.activation, [&](auto x) {
      using W = decltype(w);
      using X = decltype(x);
      return desc.output == desc.activation
                 ? Launch<W, X, X>(desc, params, stream)
                 : Launch<W, X, float>(desc, params, stream);
    });
  });
}

absl::Status RunStartWithBias(const GemmDesc& desc, const GemmParams& params,
                              CudaStream& stream) {
  const int64_t chunks = MapChunks(desc.n, 1);
  return WithFloatType(desc.output, [&](auto y) {
    using Y = decltype(y);
    return LaunchCuda(
        "gemm bias", stream, {params.y.rows() * chunks, kCudaMapThreads},
        StartWithBias<Y>, params.bias, CudaMatrix<const Y>(params.residual),
        CudaMatrix<Y>(params.y), desc.n, chunks);
  });
}

}  // namespace inlay
