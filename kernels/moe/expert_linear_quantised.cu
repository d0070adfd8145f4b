// expert_linear on CUDA with packed quantised weights (gemm/quantised/layout.h)
// and x of 16 bits: expert_mma.cuh says how the work is shared out, by units of
// 128 columns. Codes are decoded to exact levels of x's type, multiplied by the
// tensor cores, and a group's sums times its scale added in float32; minima by
// the sums of x that a product with ones gives. Shared memory: the warps' sums
// of few slots. Roofline: as for 16 bits; for many slots bound by decoding.
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/moe/expert_mma.cuh"

namespace inlay {
namespace {

constexpr int kProduct = 16;  // columns of one mma

template <typename T>
constexpr uint32_t kOnes = kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u;

// A group's sums so far, [blocks of slots][of a lane].
template <int kBlocks, bool kMin>
struct GroupSums {
  float levels[kBlocks][4];
  float x[kMin ? kBlocks : 1][4];

  __device__ void Clear() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        levels[b][j] = 0.0f;
        if (kMin) x[b][j] = 0.0f;
      }
    }
  }
  // Adds them, scaled, to `sums`.
  __device__ void Flush(const QuantForm& form, const uint8_t* unit, int group,
                        float (&sums)[kBlocks][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint8_t* at = unit + QuantScaleAt(form, lane / 4 + 8 * r, group);
      const float scale = __half2float(*reinterpret_cast<const __half*>(at));
      float min = 0.0f;
      if (kMin) {
        min = __half2float(*reinterpret_cast<const __half*>(at + 4));
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int j = 2 * r; j < 2 * r + 2; ++j) {
          sums[b][j] = fmaf(scale, levels[b][j], sums[b][j]);
          if (kMin) sums[b][j] = fmaf(min, x[b][j], sums[b][j]);
        }
      }
    }
    Clear();
  }
};

// Adds the products of a unit, columns [first, first + 128) of k.
template <QuantCodes kCodes, bool kMin, typename T, int kBlocks>
__device__ void AddUnit(const QuantForm& form, const LevelBytes& levels,
                        const uint8_t* unit, int64_t first, int64_t k,
                        const T* const (&inputs)[kBlocks],
                        float (&sums)[kBlocks][4]) {
  const int lane = threadIdx.x % 32;
  const uint32_t ones[] = {kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
  GroupSums<kBlocks, kMin> group;
  group.Clear();
  for (int piece = 0; piece < 2; ++piece) {
    QuantDecoder<kCodes, T> decoder;
    decoder.Load(unit, lane, piece, levels);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int column = (piece * 4 + q) * kProduct;
      if (first + column >= k) return;  // k ends with a group
      uint32_t a[4];
      decoder.Operand(q, a);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        uint32_t in[2] = {};
        if (inputs[b] != nullptr) {
          const T* from = inputs[b] + first + column + lane % 4 * 2;
          in[0] = *reinterpret_cast<const uint32_t*>(from);
          in[1] = *reinterpret_cast<const uint32_t*>(from + 8);
        }
        MultiplyTile<T>(group.levels[b], a, in[0], in[1]);
        if constexpr (kMin) MultiplyTile<T>(group.x[b], ones, in[0], in[1]);
      }
      const int end = column + kProduct;
      if (end % form.group == 0) {
        group.Flush(form, unit, end / form.group - 1, sums);
      }
    }
  }
}

template <QuantCodes kCodes, bool kMin, typename T, typename Y, bool kMany>
__global__ void __launch_bounds__(32 * kExpertWarps)
    ExpertQuantised(CudaMatrix<const T> x, const uint8_t* w,
                    int64_t stride_bytes, const float* bias, CudaMatrix<Y> y,
                    const __grid_constant__ ExpertItems items,
                    const __grid_constant__ QuantForm form,
                    const __grid_constant__ LevelBytes levels, int64_t n,
                    int64_t k) {
  using Cut = ExpertCut<kMany>;
  LetNextBegin();
  WaitForPrevious();
  const int64_t blocks_n = Cut::BlocksOfN(n);
  const ExpertItem item = FindExpertItem<Cut::kSlots>(
      items, static_cast<int>(blockIdx.x / blocks_n));
  if (item.rows == 0) return;
  const int64_t index = Cut::Tile(blockIdx.x % blocks_n);
  // No barrier follows where warps have tiles of their own.
  if (kMany && index * kExpertTile >= n) return;
  const uint8_t* tile =
      w + item.expert * stride_bytes + index * QuantTileBytes(form, k);
  const T* inputs[Cut::kBlocks];
  FindExpertInputs<T>(x, items, item, inputs);
  float sums[Cut::kBlocks][4] = {};
  const int unit_bytes = QuantUnitBytes(form);
  for (int64_t u = Cut::Part(); u < QuantUnits(k); u += Cut::kShare) {
    AddUnit<kCodes, kMin, T>(form, levels,
                             tile + kQuantHeadBytes + u * unit_bytes,
                             u * kQuantColumns, k, inputs, sums);
  }
  const auto* factors = reinterpret_cast<const float*>(tile);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < Cut::kBlocks; ++b) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[b][j] *= factors[lane / 4 + j / 2 * 8];
  }
  StoreExpertTile<Y, kMany>(sums, items, item, index, bias, n, y);
}

template <QuantCodes kCodes, bool kMin, typename T, typename Y, bool kMany>
absl::Status Launch(const ExpertLinearDesc& desc,
                    const ExpertLinearParams& params, const QuantForm& form,
                    CudaStream& stream) {
  using Cut = ExpertCut<kMany>;
  const ExpertItems items(desc, params, Cut::kSlots);
  return LaunchCuda("expert_linear", stream,
                    {Cut::GridBlocks(items, desc.gemm.n), 32 * kExpertWarps},
                    ExpertQuantised<kCodes, kMin, T, Y, kMany>,
                    CudaMatrix<const T>(params.x),
                    reinterpret_cast<const uint8_t*>(params.w.base),
                    static_cast<int64_t>(params.w.stride_bytes), params.bias,
                    CudaMatrix<Y>(params.y), items, form, LevelBytesOf<T>(form),
                    desc.gemm.n, desc.gemm.k);
}

template <QuantCodes kCodes, bool kMin, typename T>
absl::Status RunCodes(const ExpertLinearDesc& desc,
                      const ExpertLinearParams& params, const QuantForm& form,
                      CudaStream& stream) {
  const bool few = ExpertRowsAreFew(desc, params.y.rows());
  if (desc.gemm.output == desc.gemm.activation) {
    return few ? Launch<kCodes, kMin, T, T, false>(desc, params, form, stream)
               : Launch<kCodes, kMin, T, T, true>(desc, params, form, stream);
  }
  return few ? Launch<kCodes, kMin, T, float, false>(desc, params, form, stream)
             : Launch<kCodes, kMin, T, float, true>(desc, params, form, stream);
}

template <typename T>
absl::Status RunType(const ExpertLinearDesc& desc,
                     const ExpertLinearParams& params, const QuantForm& form,
                     CudaStream& stream) {
  using enum QuantCodes;
  switch (form.codes) {
    case kLinear4:
      return form.has_min
                 ? RunCodes<kLinear4, true, T>(desc, params, form, stream)
                 : RunCodes<kLinear4, false, T>(desc, params, form, stream);
    case kLinear6:
      return form.has_min
                 ? RunCodes<kLinear6, true, T>(desc, params, form, stream)
                 : RunCodes<kLinear6, false, T>(desc, params, form, stream);
    case kTable4:
      return RunCodes<kTable4, false, T>(desc, params, form, stream);
    case kInt8:
      return form.has_min
                 ? RunCodes<kInt8, true, T>(desc, params, form, stream)
                 : RunCodes<kInt8, false, T>(desc, params, form, stream);
    case kE4M3:
      break;
  }
  return RunCodes<kE4M3, false, T>(desc, params, form, stream);
}

}  // namespace

absl::Status RunExpertLinearQuantised(const ExpertLinearDesc& desc,
                                      const ExpertLinearParams& params,
                                      CudaStream& stream) {
  const QuantForm form = QuantFormOf(desc.gemm.weight);
  return desc.gemm.activation == DType::kF16
             ? RunType<__half>(desc, params, form, stream)
             : RunType<__nv_bfloat16>(desc, params, form, stream);
}

}  // namespace inlay
