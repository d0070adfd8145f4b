// expert_columns on CUDA. A block takes kCudaMapThreads vectors of one slot, a
// thread one: it reads four places at once, fetches those of x, which the
// caches hold as a whole (a row is some KB and read four bytes at a time), and
// writes them at once. Blocks of slots without a matrix end at once. Aims at
// the memory's bandwidth for orders and y.
#include <cstdint>

#include "kernels/cuda_row.cuh"
#include "kernels/moe/expert_columns.h"

namespace inlay {
namespace {

constexpr int kVector = 4;

// `Bits`: an element, whatever it stands for.
template <typename Bits, bool kVectors>
__global__ void Columns(const __grid_constant__ ExpertColumnsDesc desc,
                        CudaMatrix<const Bits> x, const int32_t* orders,
                        const int32_t* experts, CudaMatrix<Bits> y,
                        int64_t chunks) {
  constexpr int kCount = kVectors ? kVector : 1;
  LetNextBegin();
  WaitForPrevious();
  const int64_t slot = blockIdx.x / chunks;
  const int64_t i =
      (blockIdx.x % chunks * kCudaMapThreads + threadIdx.x) * kCount;
  const int64_t expert = experts == nullptr ? slot % desc.top_k : experts[slot];
  if (i >= desc.width || expert >= desc.num_experts) return;
  const Bits* from = x.row(desc.row_a_slot ? slot : slot / desc.top_k);
  const int32_t* order = orders + expert * desc.width + i;
  Bits* to = y.row(slot) + i;
  if constexpr (kVectors) {
    const int4 at = *reinterpret_cast<const int4*>(order);
    struct alignas(kVector * sizeof(Bits)) Four {
      Bits v[kVector];
    };
    *reinterpret_cast<Four*>(to) = {from[at.x], from[at.y], from[at.z],
                                    from[at.w]};
  } else {
    *to = from[*order];
  }
}

template <typename Bits>
absl::Status Launch(const ExpertColumnsDesc& desc,
                    const ExpertColumnsParams& params, Stream& stream) {
  const bool vectors =
      desc.width % kVector == 0 && params.y.row_stride_bytes % 16 == 0 &&
      IsCudaVector(params.y.data) && IsCudaVector(params.orders);
  const int64_t chunks = MapChunks(desc.width, vectors ? kVector : 1);
  return LaunchCuda("expert_columns", CudaStream::Of(stream),
                    {params.y.rows() * chunks, kCudaMapThreads},
                    vectors ? Columns<Bits, true> : Columns<Bits, false>, desc,
                    CudaMatrix<const Bits>(params.x), params.orders,
                    params.experts, CudaMatrix<Bits>(params.y), chunks);
}

}  // namespace

absl::Status RunExpertColumnsCuda(const ExpertColumnsDesc& desc,
                                  const ExpertColumnsParams& params,
                                  Stream& stream) {
  return desc.activation == DType::kF32
             ? Launch<uint32_t>(desc, params, stream)
             : Launch<uint16_t>(desc, params, stream);
}

}  // namespace inlay
