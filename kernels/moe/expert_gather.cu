// x's rows in the order of experts, for kernels that read a matrix an expert. A
// block a slot (of codes a warp), 16 bytes a thread; bound by the memory's
// bandwidth.
#include "kernels/cuda_float.cuh"
#include "kernels/cuda_launch.cuh"
#include "kernels/moe/expert_codes.h"
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

constexpr int kCodesRows = 8;  // of a block, a warp each

// The order of columns that tiles of w have them in.
__device__ uint4 OrderAsTiles(const uint4& v) {
  return make_uint4(
      __byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
      __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632));
}

struct CodesToGather {
  CudaMatrix<const uint8_t> codes;
  const float* scales;
  int64_t rows;
  // As ExpertLinearParams.
  const int32_t* experts;
  const int32_t* offsets;
  const int32_t* slots;
  int num_experts;
  int num_slots;
  int slots_a_row;
};

template <bool kGroups>
__global__ void __launch_bounds__(32 * kCodesRows)
    GatherCodes(const __grid_constant__ CodesToGather x, int row_vectors,
                uint4* codes, float* scales, int64_t room) {
  LetNextBegin();
  WaitForPrevious();
  const int lane = threadIdx.x % 32;
  const int i = static_cast<int>(blockIdx.x * kCodesRows + threadIdx.x / 32);
  if (i >= x.num_slots) return;
  const int slot = x.slots[i];
  const int expert = x.experts[slot];
  if (expert >= x.num_experts) return;
  const int offset = x.offsets[expert];
  const int64_t place = ExpertRowsBegin(expert, offset) + i - offset;
  const int64_t row = slot / x.slots_a_row;
  const auto* from = reinterpret_cast<const uint4*>(x.codes.row(row));
#pragma unroll 4
  for (int v = lane; v < row_vectors; v += 32) {
    codes[place * row_vectors + v] = OrderAsTiles(from[v]);
  }
  if constexpr (kGroups) {
    constexpr int kVectors = static_cast<int>(kRoundingGroup) / 16;
    for (int g = lane; g < row_vectors / kVectors; g += 32) {
      scales[g * room + place] = x.scales[g * x.rows + row];
    }
  } else if (lane == 0) {
    scales[place] = x.scales[row];
  }
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

absl::Status GatherExpertCodes(const ExpertLinearDesc& desc,
                               const ExpertLinearParams& params,
                               const RoundedRows& x, bool groups,
                               const TensorView& codes, float* scales,
                               CudaStream& stream) {
  const int64_t slots = params.y.rows();
  const CodesToGather gather = {CudaMatrix<const uint8_t>(x.codes),
                                x.scales,
                                x.codes.rows(),
                                params.experts,
                                params.offsets,
                                params.slots,
                                desc.num_experts,
                                static_cast<int>(slots),
                                desc.row_a_slot ? 1 : desc.top_k};
  return LaunchCuda("expert_linear", stream,
                    {(slots + kCodesRows - 1) / kCodesRows, 32 * kCodesRows},
                    groups ? GatherCodes<true> : GatherCodes<false>, gather,
                    static_cast<int>(desc.gemm.k / int64_t{sizeof(uint4)}),
                    reinterpret_cast<uint4*>(codes.data), scales, codes.rows());
}

}  // namespace inlay
