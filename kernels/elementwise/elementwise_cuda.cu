// elementwise on CUDA. A block takes kCudaMapThreads vectors of one row;
// arithmetic in float32, rounded once. Aims at the memory's bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/elementwise/elementwise.h"

namespace inlay {
namespace {

template <typename T, Elementwise kFunction, int kVector>
__global__ void Map(CudaMatrix<T> y_rows, CudaMatrix<const T> x_rows,
                    float value, int64_t width, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= width) return;
  T* y = y_rows.row(row) + i;
  float v[kVector];
  float x[kVector];
  LoadFloats<kVector>(y, v);
  if constexpr (kFunction == Elementwise::kAdd) {
    LoadFloats<kVector>(x_rows.row(row) + i, x);
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    if constexpr (kFunction == Elementwise::kAdd) {
      v[j] += x[j];
    } else if constexpr (kFunction == Elementwise::kScale) {
      v[j] *= value;
    } else if constexpr (kFunction == Elementwise::kClamp) {
      v[j] = fminf(fmaxf(v[j], -value), value);
    } else if constexpr (kFunction == Elementwise::kSigmoid) {
      v[j] = 1.0f / (1.0f + expf(-v[j]));
    } else {
      v[j] = value * tanhf(v[j] / value);
    }
  }
  StoreFloats<kVector>(y, v);
}

template <typename T, Elementwise kFunction>
absl::Status Launch(const ElementwiseDesc& desc,
                    const ElementwiseParams& params, CudaStream& stream) {
  // What kAdd alone has is not looked at otherwise.
  const TensorView& x = kFunction == Elementwise::kAdd ? params.x : params.y;
  const bool vector = IsCudaVector(desc.width, {&params.y, &x});
  const int64_t chunks = MapChunks(desc.width, vector ? kCudaVector : 1);
  const auto kernel =
      vector ? Map<T, kFunction, kCudaVector> : Map<T, kFunction, 1>;
  return LaunchCuda("elementwise", stream,
                    {params.y.rows() * chunks, kCudaMapThreads}, kernel,
                    CudaMatrix<T>(params.y), CudaMatrix<const T>(x),
                    params.value, desc.width, chunks);
}

}  // namespace

absl::Status RunElementwiseCuda(const ElementwiseDesc& desc,
                                const ElementwiseParams& params,
                                Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    switch (desc.function) {
      case Elementwise::kScale:
        return Launch<T, Elementwise::kScale>(desc, params, cuda);
      case Elementwise::kSoftcap:
        return Launch<T, Elementwise::kSoftcap>(desc, params, cuda);
      case Elementwise::kClamp:
        return Launch<T, Elementwise::kClamp>(desc, params, cuda);
      case Elementwise::kSigmoid:
        return Launch<T, Elementwise::kSigmoid>(desc, params, cuda);
      default:
        return Launch<T, Elementwise::kAdd>(desc, params, cuda);
    }
  });
}

}  // namespace inlay
