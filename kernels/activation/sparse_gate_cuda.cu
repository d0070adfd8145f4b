// sparse_gate on CUDA: a block a row, which is read three times, from the
// caches but for the first. Sums in float32, in an order that depends on the
// width and on how rows lie; results rounded once. Aims at the memory's
// bandwidth.
#include "kernels/activation/sparse_gate.h"
#include "kernels/cuda_row.cuh"

namespace inlay {
namespace {

constexpr int kThreads = 512;

template <typename T, int kVector>
__global__ void __launch_bounds__(kThreads)
    CutGate(CudaMatrix<T> rows, int width, float deviations) {
  __shared__ float scratch[32];
  LetNextBegin();
  WaitForPrevious();
  T* x = rows.row(blockIdx.x);
  const int first = static_cast<int>(threadIdx.x) * kVector;
  const int step = static_cast<int>(blockDim.x) * kVector;
  const auto count = static_cast<float>(width);
  float v[kVector];
  float sum = 0.0f;
  for (int i = first; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
#pragma unroll
    for (const float value : v) sum += value;
  }
  const float mean = BlockSum(sum, scratch) / count;
  float squares = 0.0f;
  for (int i = first; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
#pragma unroll
    for (const float value : v) {
      squares = fmaf(value - mean, value - mean, squares);
    }
  }
  const float deviation = sqrtf(BlockSum(squares, scratch) / count);
  const float cut = mean + deviations * deviation;
  for (int i = first; i < width; i += step) {
    LoadFloats<kVector>(x + i, v);
#pragma unroll
    for (float& value : v) {
      const float left = value - cut;
      value = left <= 0.0f ? 0.0f : left;
    }
    StoreFloats<kVector>(x + i, v);
  }
}

}  // namespace

absl::Status RunSparseGateCuda(const SparseGateDesc& desc,
                               const SparseGateParams& params, Stream& stream) {
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    const bool vector = IsCudaVector(desc.width, {&params.x});
    return LaunchCuda("sparse_gate", CudaStream::Of(stream),
                      {params.x.rows(), kThreads},
                      vector ? CutGate<T, kCudaVector> : CutGate<T, 1>,
                      CudaMatrix<T>(params.x), static_cast<int>(desc.width),
                      params.deviations);
  });
}

}  // namespace inlay
