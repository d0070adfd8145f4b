// expert_linear on CUDA with weights of 16 bits: expert_mma.cuh says how the
// work is shared out. A lane reads 16 bytes of w's rows g and g + 8 and of x's
// rows g from memory as the operands of two mma's. Shared memory: the warps'
// sums of few slots, 2 KB. Roofline: for few slots the bytes of the experts
// that are asked for over the copy bandwidth.
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/moe/expert_mma.cuh"

namespace inlay {
namespace {

constexpr int kStep = 32;  // columns

template <typename T>
__device__ uint4 Load16(const T* from) {
  return *reinterpret_cast<const uint4*>(from);
}

template <typename T, typename Y, bool kMany>
__global__ void __launch_bounds__(32 * kExpertWarps)
    ExpertMma(CudaMatrix<const T> x, const __grid_constant__ ExpertBases w,
              const float* bias, CudaMatrix<Y> y,
              const __grid_constant__ ExpertItems items, int64_t n, int64_t k) {
  using Cut = ExpertCut<kMany>;
  LetNextBegin();
  WaitForPrevious();
  const int64_t blocks_n = Cut::BlocksOfN(n);
  const ExpertItem item = FindExpertItem<Cut::kSlots>(
      items, static_cast<int>(blockIdx.x / blocks_n));
  if (item.rows == 0) return;
  const int64_t tile = Cut::Tile(blockIdx.x % blocks_n);
  const int lane = threadIdx.x % 32;
  const T* matrix = reinterpret_cast<const T*>(w.Of(item.expert));
  // Rows beyond the matrix are its last one, whose sums are dropped.
  const auto row = [&](int64_t r) {
    return matrix + min(tile * kExpertTile + r, n - 1) * k + lane % 4 * 8;
  };
  const T* low = row(lane / 4);
  const T* high = row(lane / 4 + 8);
  const T* inputs[Cut::kBlocks];
  FindExpertInputs<T>(x, items, item, inputs);
  float sums[Cut::kBlocks][4] = {};
#pragma unroll 4
  for (int64_t c = Cut::Part() * kStep; c < k; c += Cut::kShare * kStep) {
    const uint4 upper = Load16(low + c);
    const uint4 lower = Load16(high + c);
    const uint32_t first[] = {upper.x, lower.x, upper.y, lower.y};
    const uint32_t second[] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
    for (int b = 0; b < Cut::kBlocks; ++b) {
      uint4 in = make_uint4(0, 0, 0, 0);
      if (inputs[b] != nullptr) in = Load16(inputs[b] + c + lane % 4 * 8);
      MultiplyTile<T>(sums[b], first, in.x, in.y);
      MultiplyTile<T>(sums[b], second, in.z, in.w);
    }
  }
  StoreExpertTile<Y, kMany>(sums, items, item, tile, bias, n, y);
}

template <typename T, typename Y, bool kMany>
absl::Status Launch(const ExpertLinearDesc& desc,
                    const ExpertLinearParams& params, CudaStream& stream) {
  using Cut = ExpertCut<kMany>;
  const ExpertItems items(desc, params, Cut::kSlots);
  return LaunchCuda("expert_linear", stream,
                    {Cut::GridBlocks(items, desc.gemm.n), 32 * kExpertWarps},
                    ExpertMma<T, Y, kMany>, CudaMatrix<const T>(params.x),
                    ExpertBases(params.w), params.bias, CudaMatrix<Y>(params.y),
                    items, desc.gemm.n, desc.gemm.k);
}

template <typename T, typename Y>
absl::Status Run(const ExpertLinearDesc& desc, const ExpertLinearParams& params,
                 CudaStream& stream) {
  return ExpertRowsAreFew(desc, params.y.rows())
             ? Launch<T, Y, false>(desc, params, stream)
             : Launch<T, Y, true>(desc, params, stream);
}

template <typename T>
absl::Status RunType(const ExpertLinearDesc& desc,
                     const ExpertLinearParams& params, CudaStream& stream) {
  return desc.gemm.output == desc.gemm.activation
             ? Run<T, T>(desc, params, stream)
             : Run<T, float>(desc, params, stream);
}

}  // namespace

absl::Status RunExpertLinearMma(const ExpertLinearDesc& desc,
                                const ExpertLinearParams& params,
                                CudaStream& stream) {
  return desc.gemm.weight == DType::kF16
             ? RunType<__half>(desc, params, stream)
             : RunType<__nv_bfloat16>(desc, params, stream);
}

}  // namespace inlay
