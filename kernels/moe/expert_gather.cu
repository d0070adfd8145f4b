// x's rows in the order of experts, for kernels that read a matrix an expert. A
// block a slot, 16 bytes a thread; bound by the memory's bandwidth.
#include "kernels/cuda_launch.cuh"
#include "kernels/moe/expert_linear_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kGatherThreads = 128;

__global__ void __launch_bounds__(kGatherThreads)
    GatherSlots(const std::byte* x, size_t stride_bytes, const int32_t* slots,
                int slots_a_row, int row_vectors, uint4* to) {
  LetNextBegin();
  WaitForPrevious();
  const int row = slots[blockIdx.x] / slots_a_row;
  const auto* from = reinterpret_cast<const uint4*>(x + row * stride_bytes);
  for (int i = threadIdx.x; i < row_vectors; i += kGatherThreads) {
    to[int64_t{blockIdx.x} * row_vectors + i] = from[i];
  }
}

size_t GatheredRowBytes(const ExpertLinearDesc& desc) {
  return RowBytes(desc.gemm.activation, static_cast<size_t>(desc.gemm.k));
}

}  // namespace

size_t GatheredExpertBytes(const ExpertLinearDesc& desc, int64_t max_tokens) {
  return static_cast<size_t>(max_tokens * desc.top_k) * GatheredRowBytes(desc);
}

absl::StatusOr<TensorView> GatherExpertRows(const ExpertLinearDesc& desc,
                                            const ExpertLinearParams& params,
                                            CudaStream& stream) {
  const int64_t slots = params.y.rows();
  const TensorView x = MatrixView(static_cast<std::byte*>(params.workspace),
                                  desc.gemm.activation, slots, desc.gemm.k);
  INLAY_RETURN_IF_ERROR(
      LaunchCuda("expert_linear", stream, {slots, kGatherThreads}, GatherSlots,
                 params.x.data, params.x.row_stride_bytes, params.slots,
                 desc.row_a_slot ? 1 : desc.top_k,
                 static_cast<int>(GatheredRowBytes(desc) / sizeof(uint4)),
                 reinterpret_cast<uint4*>(x.data)));
  return x;
}

}  // namespace inlay
