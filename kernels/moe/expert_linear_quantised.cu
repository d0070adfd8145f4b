// expert_linear for many slots with packed quantised weights
// (gemm/quantised/layout.h) and x of 16 bits: expert_mma.cuh says how the work
// is shared out, by units of 128 columns, which come straight from memory.
// Codes are decoded to exact levels of x's type, multiplied by the tensor
// cores, and a group's sums times its scale added in float32; minima by the
// sums of x that a product with ones gives. Bound by decoding, once for 64
// slots. On Hopper expert_linear_grouped.cu serves most of this.
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/moe/expert_mma.cuh"

namespace inlay {
namespace {

using Cut = ExpertCut<true>;
constexpr int kBlocks = Cut::kBlocks;  // of slots
constexpr int kProduct = 16;           // columns of one mma

template <typename T>
constexpr uint32_t kOnes = kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u;

// A group's sums so far, [blocks of slots][of a lane].
template <bool kMin>
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
  // Adds them, scaled, to `sums`. `at`: what a lane's two rows are scaled by.
  __device__ void Flush(const uint8_t* at, float (&sums)[kBlocks][4]) {
    float2 scale, min;
    if constexpr (kMin) {
      const uint2 bits = *reinterpret_cast<const uint2*>(at);
      scale = WidenPair<__half>(bits.x);
      min = WidenPair<__half>(bits.y);
    } else {
      scale = WidenPair<__half>(*reinterpret_cast<const uint32_t*>(at));
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[b][j] = fmaf(j < 2 ? scale.x : scale.y, levels[b][j], sums[b][j]);
        if constexpr (kMin) {
          sums[b][j] = fmaf(j < 2 ? min.x : min.y, x[b][j], sums[b][j]);
        }
      }
    }
    Clear();
  }
};

// Adds the products of a unit, columns [first, first + 128) of k.
template <QuantCodes kCodes, bool kMin, typename T>
__device__ void AddUnit(const QuantForm& form, const LevelBytes& levels,
                        const uint8_t* unit, int64_t first, int64_t k,
                        const T* const (&inputs)[kBlocks],
                        float (&sums)[kBlocks][4]) {
  const int lane = threadIdx.x % 32;
  const uint32_t ones[] = {kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
  // Of two rows, and of a group.
  constexpr int kRowBytes = kMin ? 8 : 4;
  constexpr int kGroupBytes = kQuantRows / 2 * kRowBytes;
  const uint8_t* scales = unit + QuantCodeBytes(kCodes) + lane / 4 * kRowBytes;
  const int in_group = form.group / kProduct - 1;
  GroupSums<kMin> group;
  group.Clear();
#pragma unroll 1
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
      if (((piece * 4 + q) & in_group) == in_group) {
        group.Flush(scales, sums);
        scales += kGroupBytes;
      }
    }
  }
}

template <QuantCodes kCodes, bool kMin, typename T, typename Y>
__global__ void __launch_bounds__(32 * kExpertWarps)
    ExpertQuantised(CudaMatrix<const T> x,
                    const __grid_constant__ ExpertBases w, const float* bias,
                    CudaMatrix<Y> y, const __grid_constant__ ExpertItems items,
                    const __grid_constant__ QuantForm form,
                    const __grid_constant__ LevelBytes levels, int64_t n,
                    int64_t k) {
  LetNextBegin();
  WaitForPrevious();
  const int64_t blocks_n = Cut::BlocksOfN(n);
  const ExpertItem item = FindExpertItem<Cut::kSlots>(
      items, static_cast<int>(blockIdx.x / blocks_n));
  if (item.rows == 0) return;
  const int64_t index = Cut::Tile(blockIdx.x % blocks_n);
  if (index * kExpertTile >= n) return;
  const uint8_t* tile = w.Of(item.expert) + index * QuantTileBytes(form, k);
  const T* inputs[kBlocks];
  FindExpertInputs<T>(x, items, item, inputs);
  float sums[kBlocks][4] = {};
  const int unit_bytes = QuantUnitBytes(form);
  for (int64_t u = 0; u < QuantUnits(k); ++u) {
    AddUnit<kCodes, kMin, T>(form, levels,
                             tile + kQuantHeadBytes + u * unit_bytes,
                             u * kQuantColumns, k, inputs, sums);
  }
  const auto* factors = reinterpret_cast<const float*>(tile);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[b][j] *= factors[lane / 4 + j / 2 * 8];
  }
  StoreExpertTile<Y, true>(sums, items, item, index, bias, n, y);
}

template <QuantCodes kCodes, bool kMin, typename T, typename Y>
absl::Status Launch(const ExpertLinearDesc& desc,
                    const ExpertLinearParams& params, const QuantForm& form,
                    CudaStream& stream) {
  const ExpertItems items(desc, params, Cut::kSlots);
  return LaunchCuda("expert_linear", stream,
                    {Cut::GridBlocks(items, desc.gemm.n), 32 * kExpertWarps},
                    ExpertQuantised<kCodes, kMin, T, Y>,
                    CudaMatrix<const T>(params.x), ExpertBases(params.w),
                    params.bias, CudaMatrix<Y>(params.y), items, form,
                    LevelBytesOf<T>(form), desc.gemm.n, desc.gemm.k);
}

template <QuantCodes kCodes, bool kMin, typename T>
absl::Status RunCodes(const ExpertLinearDesc& desc,
                      const ExpertLinearParams& params, const QuantForm& form,
                      CudaStream& stream) {
  return desc.gemm.output == desc.gemm.activation
             ? Launch<kCodes, kMin, T, T>(desc, params, form, stream)
             : Launch<kCodes, kMin, T, float>(desc, params, form, stream);
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

absl::Status RunExpertLinearQuantisedMany(const ExpertLinearDesc& desc,
                                          const ExpertLinearParams& params,
                                          CudaStream& stream) {
  const QuantForm form = QuantFormOf(desc.gemm.weight);
  return desc.gemm.activation == DType::kF16
             ? RunType<__half>(desc, params, form, stream)
             : RunType<__nv_bfloat16>(desc, params, form, stream);
}

}  // namespace inlay
