// layer_norm on CUDA. A warp a row up to kWarpRowWidth, otherwise a block;
// three passes over the row (mean, variance, output), the later ones out of the
// first-level cache. Sums in float32, a fixed tree. Aims at the memory's
// bandwidth: x read, y written.
#include "kernels/cuda_row.cuh"
#include "kernels/layer_norm/layer_norm.h"

namespace inlay {
namespace {

// x and y may be the same memory: a thread reads again only what it writes.
template <typename X, typename Y, int kVector, bool kWarp>
__global__ void LayerNorm(CudaMatrix<X> x_rows, const float* weight,
                          const float* bias, float epsilon,
                          CudaMatrix<Y> y_rows, int64_t rows, int64_t width) {
  const RowThreads<kWarp> threads;
  LetNextBegin();
  WaitForPrevious();
  if (kWarp && threads.row >= rows) return;
  const X* x = x_rows.row(threads.row);
  Y* y = y_rows.row(threads.row);
  const int64_t first = threads.lane * kVector;
  const int64_t step = threads.count * kVector;
  float v[kVector];
  float sum = 0.0f;
  for (int64_t i = first; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum += v[j];
  }
  const float mean = threads.Sum(sum) / static_cast<float>(width);
  float squares = 0.0f;
  for (int64_t i = first; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) squares += (v[j] - mean) * (v[j] - mean);
  }
  const float variance = threads.Sum(squares) / static_cast<float>(width);
  const float factor = 1.0f / sqrtf(variance + epsilon);
  for (int64_t i = first; i < width; i += step) {
    float w[kVector];
    LoadFloats<kVector>(x + i, v);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] = (v[j] - mean) * factor;
    if (weight != nullptr) {
      LoadFloats<kVector>(weight + i, w);
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[j] *= w[j];
    }
    if (bias != nullptr) {
      LoadFloats<kVector>(bias + i, w);
#pragma unroll
      for (int j = 0; j < kVector; ++j) v[j] += w[j];
    }
    StoreFloats<kVector>(y + i, v);
  }
}

template <typename X, typename Y, int kVector>
absl::Status Launch(const LayerNormDesc& desc, const LayerNormParams& params,
                    CudaStream& stream) {
  const int64_t rows = params.x.rows();
  const auto kernel = desc.width <= kWarpRowWidth
                          ? LayerNorm<X, Y, kVector, true>
                          : LayerNorm<X, Y, kVector, false>;
  return LaunchCuda("layer_norm", stream, RowGrid(rows, desc.width, kVector),
                    kernel, CudaMatrix<X>(params.x), params.weight, params.bias,
                    params.epsilon, CudaMatrix<Y>(params.y), rows, desc.width);
}

}  // namespace

absl::Status RunLayerNormCuda(const LayerNormDesc& desc,
                              const LayerNormParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  const bool vector = IsCudaVector(desc.width, {&params.x, &params.y}) &&
                      IsCudaVector(params.weight) && IsCudaVector(params.bias);
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
