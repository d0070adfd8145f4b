// expert_linear for few slots with packed quantised weights
// (gemm/quantised/layout.h) and x of 16 bits.
//
// Mapping: expert_mma.cuh: a block has a tile of 16 rows of w and up to 8
// slots of its expert; its four warps take units of 128 columns in turn. A
// warp's next kRing units are on their way by cp.async before it decodes the
// first, into a ring of its own, so that all blocks of an SM together wait for
// memory once. Shared memory: the rings (17 KB a block in 4 bits, 37 in 8) and
// the warps' sums.
//
// Arithmetic: decode.cuh's levels times x by mma.m16n8k16, float32 sums of a
// group, times its scale; minima by the sums of x that an mma with ones gives,
// with what is folded into levels. A slot's bits depend on nothing beside it.
//
// Roofline: the bytes of the experts that are asked for over the copy
// bandwidth; at one token instructions take as long: 180 a unit and warp.
#include <cuda_pipeline_primitives.h>

#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/moe/expert_mma.cuh"

namespace inlay {
namespace {

using Cut = ExpertCut<false>;
constexpr int kProduct = 16;  // columns of one mma
constexpr int kProducts = kQuantColumns / kProduct;
constexpr int kRing = 4;  // units

template <QuantCodes kCodesOf, int kGroupOf, bool kMinOf>
struct FewForm {
  static constexpr QuantCodes kCodes = kCodesOf;
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kMin = kMinOf;
  static constexpr int kUnitBytes = QuantUnitBytes(kCodes, kGroup, kMin);
  static constexpr size_t kRingBytes =
      size_t{kExpertWarps} * kRing * kUnitBytes;
};

// x for a unit's products.
using UnitInputs = uint32_t[kProducts][2];

// Columns [first, first + 128) of a row, zeros beyond k and of no row.
template <typename T>
__device__ void LoadInputs(const T* row, int first, int k, UnitInputs& x) {
  const T* from = row + first + threadIdx.x % 4 * 2;
#pragma unroll
  for (int q = 0; q < kProducts; ++q) {
    x[q][0] = x[q][1] = 0;
    if (row == nullptr || first + q * kProduct >= k) continue;
    x[q][0] = *reinterpret_cast<const uint32_t*>(from + q * kProduct);
    x[q][1] = *reinterpret_cast<const uint32_t*>(from + q * kProduct + 8);
  }
}

template <class Form, typename T>
__device__ void AddUnit(const uint8_t* unit, const UnitInputs& x,
                        const LevelBytes& levels, float (&sums)[4]) {
  using Decoder = QuantDecoder<Form::kCodes, T,
                               Form::kMin && kIsBf16<T> &&
                                   Form::kCodes != QuantCodes::kInt8>;
  constexpr uint32_t kOnes = kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u;
  constexpr uint32_t ones[] = {kOnes, kOnes, kOnes, kOnes};
  constexpr int kInGroup = Form::kGroup / kProduct;
  // Of two rows, and of a group.
  constexpr int kRowBytes = Form::kMin ? 8 : 4;
  constexpr int kGroupBytes = kQuantRows / 2 * kRowBytes;
  const int lane = threadIdx.x % 32;
  const uint8_t* scales =
      unit + QuantCodeBytes(Form::kCodes) + lane / 4 * kRowBytes;
  float part[4], sums_x[4];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    Decoder decoder;
    decoder.Load(unit, lane, piece, levels);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int product = piece * 4 + q;
      if (product % kInGroup == 0) {
#pragma unroll
        for (int j = 0; j < 4; ++j) part[j] = sums_x[j] = 0.0f;
      }
      uint32_t a[4];
      decoder.Operand(q, a);
      MultiplyTile<T>(part, a, x[product][0], x[product][1]);
      if constexpr (Form::kMin) {
        MultiplyTile<T>(sums_x, ones, x[product][0], x[product][1]);
      }
      if (product % kInGroup != kInGroup - 1) continue;
      const uint8_t* at = scales + product / kInGroup * kGroupBytes;
      if constexpr (Form::kMin) {
        const uint2 bits = *reinterpret_cast<const uint2*>(at);
        const float2 scale = WidenPair<__half>(bits.x);
        const float2 min = WidenPair<__half>(bits.y);
        const float low = fmaf(-Decoder::kOffset, scale.x, min.x);
        const float high = fmaf(-Decoder::kOffset, scale.y, min.y);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[j] = fmaf(j < 2 ? scale.x : scale.y, part[j], sums[j]);
          sums[j] = fmaf(j < 2 ? low : high, sums_x[j], sums[j]);
        }
      } else {
        const float2 scale =
            WidenPair<__half>(*reinterpret_cast<const uint32_t*>(at));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[j] = fmaf(j < 2 ? scale.x : scale.y, part[j], sums[j]);
        }
      }
    }
  }
}

// A warp's share of the units of a tile, through its ring.
template <class Form, typename T>
__device__ void AddUnits(const uint8_t* units, int k, const T* row,
                         const LevelBytes& levels, float (&sums)[4]) {
  extern __shared__ __align__(16) uint8_t shared[];
  constexpr int kVectors = Form::kUnitBytes / 16;
  const int lane = threadIdx.x % 32;
  uint8_t* ring = shared + Cut::Part() * kRing * Form::kUnitBytes;
  const int count = static_cast<int>(QuantUnits(k));
  const auto fetch = [&](int u, uint8_t* to) {
    if (u < count) {
      const uint8_t* from = units + u * Form::kUnitBytes + lane * 16;
#pragma unroll
      for (int i = 0; i < (kVectors + 31) / 32; ++i) {
        if (i * 32 + 31 < kVectors || i * 32 + lane < kVectors) {
          __pipeline_memcpy_async(to + lane * 16 + i * 512, from + i * 512, 16);
        }
      }
    }
    __pipeline_commit();
  };
#pragma unroll
  for (int i = 0; i < kRing; ++i) {
    fetch(Cut::Part() + i * Cut::kShare, ring + i * Form::kUnitBytes);
  }
  int at = 0;
#pragma unroll 1
  for (int u = Cut::Part(); u < count; u += Cut::kShare) {
    UnitInputs x;
    LoadInputs(row, u * kQuantColumns, k, x);
    __pipeline_wait_prior(kRing - 1);
    __syncwarp();
    uint8_t* unit = ring + at * Form::kUnitBytes;
    AddUnit<Form, T>(unit, x, levels, sums);
    __syncwarp();
    fetch(u + kRing * Cut::kShare, unit);
    at = (at + 1) % kRing;
  }
}

template <class Form, typename T, typename Y>
__global__ void __launch_bounds__(32 * kExpertWarps)
    ExpertQuantisedFew(CudaMatrix<const T> x,
                       const __grid_constant__ ExpertBases w, const float* bias,
                       CudaMatrix<Y> y,
                       const __grid_constant__ ExpertItems items,
                       const __grid_constant__ LevelBytes levels, int blocks_n,
                       int n, int k) {
  LetNextBegin();
  const int index = static_cast<int>(blockIdx.x) / blocks_n;
  const int tile = static_cast<int>(blockIdx.x) % blocks_n;
  const int64_t tile_bytes =
      kQuantHeadBytes + QuantUnits(k) * int64_t{Form::kUnitBytes};
  WaitForPrevious();
  const ExpertItem item = FindExpertItem<Cut::kSlots>(items, index);
  if (item.rows == 0) return;
  const uint8_t* from = w.Of(item.expert) + tile * tile_bytes;
  const T* inputs[1];
  FindExpertInputs<T>(x, items, item, inputs);
  const auto* factors = reinterpret_cast<const float*>(from);
  const int lane = threadIdx.x % 32;
  const float factor[] = {factors[lane / 4], factors[lane / 4 + 8]};
  float sums[1][4] = {};
  AddUnits<Form>(from + kQuantHeadBytes, k, inputs[0], levels, sums[0]);
#pragma unroll
  for (int j = 0; j < 4; ++j) sums[0][j] *= factor[j / 2];
  StoreExpertTile<Y, false>(sums, items, item, tile, bias, n, y);
}

template <class Form, typename T, typename Y>
absl::Status LaunchTyped(const ExpertLinearDesc& desc,
                         const ExpertLinearParams& params,
                         const QuantForm& form, CudaStream& stream) {
  const ExpertItems items(desc, params, Cut::kSlots);
  const int64_t n = desc.gemm.n;
  return LaunchCuda(
      "expert_linear", stream,
      {Cut::GridBlocks(items, n), 32 * kExpertWarps, Form::kRingBytes},
      ExpertQuantisedFew<Form, T, Y>, CudaMatrix<const T>(params.x),
      ExpertBases(params.w), params.bias, CudaMatrix<Y>(params.y), items,
      LevelBytesOf<T>(form),
      static_cast<int>((n + kExpertTile - 1) / kExpertTile),
      static_cast<int>(n), static_cast<int>(desc.gemm.k));
}

template <QuantCodes kCodes, int kGroup, bool kMin>
absl::Status Launch(const ExpertLinearDesc& desc,
                    const ExpertLinearParams& params, const QuantForm& form,
                    CudaStream& stream) {
  using Form = FewForm<kCodes, kGroup, kMin>;
  const GemmDesc& gemm = desc.gemm;
  if (gemm.activation == DType::kF16) {
    return gemm.output == gemm.activation
               ? LaunchTyped<Form, __half, __half>(desc, params, form, stream)
               : LaunchTyped<Form, __half, float>(desc, params, form, stream);
  }
  return gemm.output == gemm.activation
             ? LaunchTyped<Form, __nv_bfloat16, __nv_bfloat16>(desc, params,
                                                               form, stream)
             : LaunchTyped<Form, __nv_bfloat16, float>(desc, params, form,
                                                       stream);
}

}  // namespace

absl::Status RunExpertLinearQuantisedFew(const ExpertLinearDesc& desc,
                                         const ExpertLinearParams& params,
                                         CudaStream& stream) {
  using enum QuantCodes;
  const QuantForm form = QuantFormOf(desc.gemm.weight);
  const auto run = [&](auto launch) {
    return launch(desc, params, form, stream);
  };
  switch (form.codes) {
    case kLinear4:
      if (form.group == 128) return run(Launch<kLinear4, 128, true>);
      if (form.group == 16) {
        return run(form.has_min ? Launch<kLinear4, 16, true>
                                : Launch<kLinear4, 16, false>);
      }
      return run(form.has_min ? Launch<kLinear4, 32, true>
                              : Launch<kLinear4, 32, false>);
    case kLinear6:
      return run(form.has_min ? Launch<kLinear6, 32, true>
                              : Launch<kLinear6, 16, false>);
    case kTable4:
      return run(form.group == 16 ? Launch<kTable4, 16, false>
                                  : Launch<kTable4, 32, false>);
    case kInt8:
      if (form.group == 128) return run(Launch<kInt8, 128, true>);
      return run(form.has_min ? Launch<kInt8, 32, true>
                              : Launch<kInt8, 32, false>);
    case kE4M3:
      break;
  }
  return run(form.group == 128 ? Launch<kE4M3, 128, false>
                               : Launch<kE4M3, 32, false>);
}

}  // namespace inlay
