// moe_combine on CUDA. A block takes kCudaMapThreads vectors of one token, a
// thread one vector. Accumulation: float32, ranks in ascending order. Aims at
// the memory's bandwidth.
#include "kernels/cuda_row.cuh"
#include "kernels/moe/combine.h"

namespace inlay {
namespace {

template <int kVector>
__global__ void Combine(const __grid_constant__ MoeCombineDesc desc,
                        const __grid_constant__ MoeCombineParams params,
                        int64_t chunks) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t token = blockIdx.x / chunks;
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kVector;
  if (i >= desc.width) return;
  const auto load = [&](const TensorView& view, int64_t row,
                        float(&to)[kVector]) {
    LoadFloats<kVector>(CudaMatrix<const float>(view).row(row) + i, to);
  };
  float sums[kVector] = {};
  float part[kVector];
  const auto add = [&](float factor) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      sums[j] = fmaf(factor, part[j], sums[j]);
    }
  };
  for (int r = 0; r < desc.top_k; ++r) {
    const int64_t slot = token * desc.top_k + r;
    load(params.x, slot, part);
    add(params.weights[slot]);
  }
  if (desc.shared) {
    load(params.shared, token, part);
    float factor = 1.0f;
    if (desc.gated) {
      const float gate = *CudaMatrix<const float>(params.gate).row(token);
      factor = 1.0f / (1.0f + expf(-gate));
    }
    add(factor);
  }
  if (params.residual.data != nullptr) {
    load(params.residual, token, part);
    add(1.0f);
  }
  StoreFloats<kVector>(CudaMatrix<float>(params.y).row(token) + i, sums);
}

}  // namespace

absl::Status RunMoeCombineCuda(const MoeCombineDesc& desc,
                               const MoeCombineParams& params, Stream& stream) {
  const bool vector = IsCudaVector(
      desc.width, {&params.x, &params.shared, &params.residual, &params.y});
  const int64_t chunks = MapChunks(desc.width, vector ? kCudaVector : 1);
  return LaunchCuda("moe_combine", CudaStream::Of(stream),
                    {params.y.rows() * chunks, kCudaMapThreads},
                    vector ? Combine<kCudaVector> : Combine<1>, desc, params,
                    chunks);
}

}  // namespace inlay
