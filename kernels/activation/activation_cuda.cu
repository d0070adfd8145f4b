// activation on CUDA. A block takes kCudaMapThreads vectors of one row, a
// thread one vector; arithmetic in float32, rounded once. Aims at the memory's
// bandwidth.
#include "kernels/activation/activation.cuh"
#include "kernels/activation/activation.h"
#include "kernels/cuda_row.cuh"

namespace inlay {
namespace {

// y may be the gate half of x: a thread reads both halves before it writes.
template <typename T, Activation kFunction, int kVector>
__global__ void Activate(CudaMatrix<T> x_rows, CudaMatrix<T> y_rows, bool gated,
                         int width, unsigned chunks, float limit) {
  LetNextBegin();
  WaitForPrevious();
  const unsigned row = blockIdx.x / chunks;
  const unsigned chunk = blockIdx.x - row * chunks;
  const auto i =
      static_cast<int>(chunk * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= width) return;
  const T* x = x_rows.row(row) + i;
  float v[kVector];
  LoadFloats<kVector>(x, v);
  if (gated) {
    float up[kVector];
    LoadFloats<kVector>(x + width, up);
    ApplyGated<kFunction>(limit, v, up);
  } else if constexpr (!kHasLimit<kFunction>) {
#pragma unroll
    for (float& value : v) value = ApplyActivation<kFunction>(value);
  }
  StoreFloats<kVector>(y_rows.row(row) + i, v);
}

template <typename T, Activation kFunction>
absl::Status Launch(const ActivationDesc& desc, const ActivationParams& params,
                    CudaStream& stream) {
  const bool vector = IsCudaVector(desc.width, {&params.x, &params.y});
  const int64_t chunks = MapChunks(desc.width, vector ? kCudaVector : 1);
  const auto kernel =
      vector ? Activate<T, kFunction, kCudaVector> : Activate<T, kFunction, 1>;
  return LaunchCuda(
      "activation", stream, {params.y.rows() * chunks, kCudaMapThreads}, kernel,
      CudaMatrix<T>(params.x), CudaMatrix<T>(params.y), desc.gated,
      static_cast<int>(desc.width), static_cast<unsigned>(chunks), desc.limit);
}

}  // namespace

absl::Status RunActivationCuda(const ActivationDesc& desc,
                               const ActivationParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    switch (desc.function) {
      case Activation::kGelu:
        return Launch<T, Activation::kGelu>(desc, params, cuda);
      case Activation::kGeluTanh:
        return Launch<T, Activation::kGeluTanh>(desc, params, cuda);
      case Activation::kRelu:
        return Launch<T, Activation::kRelu>(desc, params, cuda);
      case Activation::kReluSquared:
        return Launch<T, Activation::kReluSquared>(desc, params, cuda);
      case Activation::kClampedSilu:
        return Launch<T, Activation::kClampedSilu>(desc, params, cuda);
      case Activation::kLimitedSilu:
        return Launch<T, Activation::kLimitedSilu>(desc, params, cuda);
      case Activation::kCappedSilu:
        return Launch<T, Activation::kCappedSilu>(desc, params, cuda);
      default:
        return Launch<T, Activation::kSilu>(desc, params, cuda);
    }
  });
}

}  // namespace inlay
