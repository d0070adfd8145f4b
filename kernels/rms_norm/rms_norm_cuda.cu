// rms_norm on CUDA. A warp a row up to kWarpRowWidth, otherwise a block; two
// passes over the row, the second out of the first-level cache. Sums in
// float32, a fixed tree. Aims at the memory's bandwidth: x read, y written.
#include "kernels/cuda_row.cuh"
#include "kernels/rms_norm/rms_norm.cuh"
#include "kernels/rms_norm/rms_norm.h"

namespace inlay {
namespace {

// x and y may be the same memory: a thread reads again only what it writes.
template <typename X, typename Y, int kVector, bool kWarp>
__global__ void RmsNorm(CudaMatrix<X> x_rows, const float* weight,
                        float epsilon, CudaMatrix<Y> y_rows, int64_t rows,
                        int64_t width) {
  const RowThreads<kWarp> threads;
  LetNextBegin();
  WaitForPrevious();
  if (kWarp && threads.row >= rows) return;
  const X* x = x_rows.row(threads.row);
  Y* y = y_rows.row(threads.row);
  float v[kVector];
  float squares = 0.0f;
  for (int64_t i = threads.lane * kVector; i < width;
       i += threads.count * kVector) {
    LoadFloats<kVector>(x + i, v);
    squares = AddSquares(v, squares);
  }
  const float factor = RmsNormFactor(threads.Sum(squares), width, epsilon);
  for (int64_t i = threads.lane * kVector; i < width;
       i += threads.count * kVector) {
    LoadFloats<kVector>(x + i, v);
    RmsNormScale(v, factor, weight, i);
    StoreFloats<kVector>(y + i, v);
  }
}

template <typename X, typename Y, int kVector>
absl::Status Launch(const RmsNormDesc& desc, const RmsNormParams& params,
                    CudaStream& stream) {
  const int64_t rows = params.x.rows();
  const auto kernel = desc.width <= kWarpRowWidth
                          ? RmsNorm<X, Y, kVector, true>
                          : RmsNorm<X, Y, kVector, false>;
  return LaunchCuda("rms_norm", stream, RowGrid(rows, desc.width, kVector),
                    kernel, CudaMatrix<X>(params.x), params.weight,
                    params.epsilon, CudaMatrix<Y>(params.y), rows, desc.width);
}

}  // namespace

absl::Status RunRmsNormCuda(const RmsNormDesc& desc,
                            const RmsNormParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const bool vector = IsCudaVector(desc.width, {&params.x, &params.y}) &&
                      IsCudaVector(params.weight);
  const auto launch = [&](auto x, auto y) {
    using X = decltype(x);
    using Y = decltype(y);
    return vector ? Launch<X, Y, kCudaVector>(desc, params, cuda)
                  : Launch<X, Y, 1>(desc, params, cuda);
  };
  if (desc.activation == DType::kF32) {
    return WithFloatType(desc.output, [&](auto y) { return launch(0.0f, y); });
  }
  return WithFloatType(desc.activation, [&](auto x) { return launch(x, x); });
}

}  // namespace inlay
