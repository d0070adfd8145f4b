// moe_identity on CUDA. A block takes kCudaMapThreads vectors of one slot, a
// thread one vector; blocks of other slots end at once. Aims at the memory's
// bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/moe/identity.h"

namespace inlay {
namespace {

template <typename T, int kVector>
__global__ void Identity(const __grid_constant__ MoeIdentityDesc desc,
                         CudaMatrix<const T> x, const int32_t* experts,
                         CudaMatrix<float> y, int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t slot = blockIdx.x / chunks;
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= desc.width || experts[slot] < desc.num_experts) return;
  float values[kVector];
  LoadFloats<kVector>(x.row(slot / desc.top_k) + i, values);
  StoreFloats<kVector>(y.row(slot) + i, values);
}

}  // namespace

absl::Status RunMoeIdentityCuda(const MoeIdentityDesc& desc,
                                const MoeIdentityParams& params,
                                Stream& stream) {
  const bool vector = IsCudaVector(desc.width, {&params.x, &params.y});
  const int64_t chunks = MapChunks(desc.width, vector ? kCudaVector : 1);
  return WithFloatType(desc.activation, [&](auto type) {
    using T = decltype(type);
    return LaunchCuda("moe_identity", CudaStream::Of(stream),
                      {params.y.rows() * chunks, kCudaMapThreads},
                      vector ? Identity<T, kCudaVector> : Identity<T, 1>, desc,
                      CudaMatrix<const T>(params.x), params.experts,
                      CudaMatrix<float>(params.y), chunks);
  });
}

}  // namespace inlay
