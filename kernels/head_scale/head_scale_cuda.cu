// head_scale on CUDA. A block takes kCudaMapThreads vectors of one row, all of
// whose elements are of one head; factors are made in float32 by every thread,
// products rounded once. Aims at the memory's bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/head_scale/head_scale.h"

namespace inlay {
namespace {

template <typename T, int kVector>
__global__ void __launch_bounds__(kCudaMapThreads)
    HeadScale(CudaMatrix<T> rows, const int32_t* positions, const float* scale,
              const float* bias, int64_t width, int head_dim, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t row = blockIdx.x / chunks;
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= width) return;
  const int64_t head = i / head_dim;
  const float log_keys = logf(static_cast<float>(int64_t{positions[row]} + 1));
  const float factor = fmaf(scale[head], log_keys, bias[head]);
  T* x = rows.row(row) + i;
  float v[kVector];
  LoadFloats<kVector>(x, v);
#pragma unroll
  for (int j = 0; j < kVector; ++j) v[j] *= factor;
  StoreFloats<kVector>(x, v);
}

}  // namespace

absl::Status RunHeadScaleCuda(const HeadScaleDesc& desc,
                              const HeadScaleParams& params, Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    const int64_t width = int64_t{desc.num_heads} * desc.head_dim;
    const bool vector = IsCudaVector(desc.head_dim, {&params.x});
    const int64_t chunks = MapChunks(width, vector ? kCudaVector : 1);
    return LaunchCuda("head_scale", cuda,
                      {params.x.rows() * chunks, kCudaMapThreads},
                      vector ? HeadScale<T, kCudaVector> : HeadScale<T, 1>,
                      CudaMatrix<T>(params.x), params.positions, params.scale,
                      params.bias, width, desc.head_dim, chunks);
  });
}

}  // namespace inlay
