// rms_norm on CUDA. A warp a row up to kWarpRowWidth, otherwise a block; two
// passes over the row, the second out of registers for a thread's first vector
// and out of the first-level cache for others. Sums in float32, a fixed tree.
// Aims at the memory's bandwidth: x read, y written.
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
  const int64_t begin = threads.lane * kVector;
  const int64_t step = threads.count * kVector;
  float first[kVector] = {};
  if (begin < width) LoadFloats<kVector>(x + begin, first);
  float squares = AddSquares(first, 0.0f);
  float v[kVector];
  for (int64_t i = begin + step; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
    squares = AddSquares(v, squares);
  }
  const float factor = RmsNormFactor(threads.Sum(squares), width, epsilon);
  const auto store = [&](int64_t i, float(&values)[kVector]) {
    RmsNormScale(values, factor, weight, i);
    StoreFloats<kVector>(y + i, values);
  };
  if (begin < width) store(begin, first);
  for (int64_t i = begin + step; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
    store(i, v);
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
