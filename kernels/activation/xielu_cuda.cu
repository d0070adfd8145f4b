// xielu on CUDA. A block takes kCudaMapThreads vectors of one row, a thread one
// vector; arithmetic in float32, rounded once. Aims at the memory's bandwidth.
#include "kernels/activation/xielu.h"
#include "kernels/cuda_row.cuh"

namespace inlay {
namespace {

// NaN stays: in the difference, whatever fminf makes of it.
__device__ float Apply(const XieluNumbers& numbers, float x) {
  if (x > 0.0f) return x * (numbers.alpha_p * x + numbers.beta);
  const float curve = expm1f(fminf(x, numbers.eps)) - x;
  return numbers.alpha_n * curve + numbers.beta * x;
}

template <typename T, int kVector>
__global__ void ActivateXielu(CudaMatrix<T> x_rows, CudaMatrix<T> y_rows,
                              int width, unsigned chunks,
                              XieluNumbers numbers) {
  LetNextBegin();
  WaitForPrevious();
  const unsigned row = blockIdx.x / chunks;
  const unsigned chunk = blockIdx.x - row * chunks;
  const auto i =
      static_cast<int>(chunk * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= width) return;
  float v[kVector];
  LoadFloats<kVector>(x_rows.row(row) + i, v);
#pragma unroll
  for (float& value : v) value = Apply(numbers, value);
  StoreFloats<kVector>(y_rows.row(row) + i, v);
}

}  // namespace

absl::Status RunXieluCuda(const XieluDesc& desc, const XieluParams& params,
                          Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    const bool vector = IsCudaVector(desc.width, {&params.x, &params.y});
    const int64_t chunks = MapChunks(desc.width, vector ? kCudaVector : 1);
    const auto kernel =
        vector ? ActivateXielu<T, kCudaVector> : ActivateXielu<T, 1>;
    return LaunchCuda("xielu", cuda,
                      {params.y.rows() * chunks, kCudaMapThreads}, kernel,
                      CudaMatrix<T>(params.x), CudaMatrix<T>(params.y),
                      static_cast<int>(desc.width),
                      static_cast<unsigned>(chunks), params.numbers);
  });
}

}  // namespace inlay
