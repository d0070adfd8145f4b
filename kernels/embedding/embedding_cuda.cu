// embedding on CUDA. A block takes kCudaMapThreads vectors of one token's row.
// Vectors are 16 bytes of what is written, so that a warp's stores are whole
// lines. Aims at the memory's bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/embedding/embedding.h"

namespace inlay {
namespace {

template <typename T, typename Y, int kVector>
__global__ void Embed(CudaMatrix<const T> table, const int32_t* ids,
                      int64_t num_ids, float scale, bool accumulate,
                      CudaMatrix<Y> y_rows, int64_t width, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x / chunks;
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= width) return;
  Y* y = y_rows.row(token) + i;
  float v[kVector];
  const int32_t id = ids[token];
  LoadFloats<kVector>(table.row(id < num_ids ? id : 0) + i, v);
  // The product is rounded before the sum, as on the CPU.
#pragma unroll
  for (int j = 0; j < kVector; ++j) v[j] = __fmul_rn(v[j], scale);
  if (accumulate) {
    float before[kVector];
    LoadFloats<kVector>(y, before);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] += before[j];
  }
  StoreFloats<kVector>(y, v);
}

template <typename T, typename Y>
absl::Status Launch(const EmbeddingDesc& desc, const EmbeddingParams& params,
                    Stream& stream) {
  constexpr int kVector = 16 / sizeof(Y);
  const bool vector = IsCudaVector(desc.width, {&params.table, &params.y});
  const int64_t chunks = MapChunks(desc.width, vector ? kVector : 1);
  return LaunchCuda("embedding", CudaStream::Of(stream),
                    {params.y.rows() * chunks, kCudaMapThreads},
                    vector ? Embed<T, Y, kVector> : Embed<T, Y, 1>,
                    CudaMatrix<const T>(params.table), params.ids,
                    params.table.rows(), params.scale, params.accumulate,
                    CudaMatrix<Y>(params.y), desc.width, chunks);
}

}  // namespace

absl::Status RunEmbeddingCuda(const EmbeddingDesc& desc,
                              const EmbeddingParams& params, Stream& stream) {
  return WithFloatType(desc.table, [&](auto type) {
    using T = decltype(type);
    return desc.activation == DType::kF32
               ? Launch<T, float>(desc, params, stream)
               : Launch<T, T>(desc, params, stream);
  });
}

}  // namespace inlay
