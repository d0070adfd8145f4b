// expert_linear on CUDA with packed quantised weights (gemm/quantised/layout.h)
// and x of 16 bits: expert_mma.cuh says how the work is shared out, by units of
// 128 columns. Codes are decoded to exact levels of x's type, multiplied by the
// tensor cores, and a group's sums times its scale added in float32; minima by
// the sums of x that a product with ones gives.
//
// Few slots: a warp's next kRing units are on their way by cp.async before it
// decodes the first, into a ring of its own (17 KB a block in 4 bits, 37 in 8),
// so that all blocks of an SM together wait for memory once. Shared memory
// besides: the warps' sums. Many slots: units straight from memory, each
// decoded for 64 slots. Roofline: memory; for many slots bound by decoding.
#include <cuda_pipeline_primitives.h>

#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/layout.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "kernels/moe/expert_mma.cuh"

namespace inlay {
namespace {

constexpr int kProduct = 16;  // columns of one mma
constexpr int kProducts = kQuantColumns / kProduct;
constexpr int kRing = 4;  // units

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

// The two registers of x for columns [column, column + 16).
template <typename T>
__device__ void LoadInput(const T* row, int64_t column, uint32_t (&in)[2]) {
  if (row == nullptr) {
    in[0] = in[1] = 0;
    return;
  }
  const T* from = row + column + threadIdx.x % 4 * 2;
  in[0] = *reinterpret_cast<const uint32_t*>(from);
  in[1] = *reinterpret_cast<const uint32_t*>(from + 8);
}

// Adds the products of a unit's first `columns` columns; load(b, column, in)
// gives x of block b.
template <QuantCodes kCodes, bool kMin, typename T, int kBlocks, typename Load>
__device__ void AddUnit(const QuantForm& form, const LevelBytes& levels,
                        const uint8_t* unit, int columns, const Load& load,
                        float (&sums)[kBlocks][4]) {
  const int lane = threadIdx.x % 32;
  const uint32_t ones[] = {kOnes<T>, kOnes<T>, kOnes<T>, kOnes<T>};
  // Of two rows, and of a group.
  constexpr int kRowBytes = kMin ? 8 : 4;
  constexpr int kGroupBytes = kQuantRows / 2 * kRowBytes;
  const uint8_t* scales = unit + QuantCodeBytes(kCodes) + lane / 4 * kRowBytes;
  const int in_group = form.group / kProduct - 1;
  GroupSums<kBlocks, kMin> group;
  group.Clear();
#pragma unroll(kBlocks == 1 ? 2 : 1)
  for (int piece = 0; piece < 2; ++piece) {
    QuantDecoder<kCodes, T> decoder;
    decoder.Load(unit, lane, piece, levels);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int column = (piece * 4 + q) * kProduct;
      if (column >= columns) return;  // k ends with a group
      uint32_t a[4];
      decoder.Operand(q, a);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        uint32_t in[2];
        load(b, column, in);
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

// A warp's share of the units of a tile, kShare apart, through its ring.
template <QuantCodes kCodes, bool kMin, typename T>
__device__ void AddFew(const QuantForm& form, const LevelBytes& levels,
                       const uint8_t* units, int64_t k, const T* row,
                       float (&sums)[1][4]) {
  using Cut = ExpertCut<false>;
  extern __shared__ __align__(16) uint8_t shared[];
  const int unit_bytes = QuantUnitBytes(form);
  const int lane = threadIdx.x % 32;
  uint8_t* ring = shared + Cut::Part() * kRing * unit_bytes;
  const int count = static_cast<int>(QuantUnits(k));
  const auto fetch = [&](int u, uint8_t* to) {
    if (u < count) {
      const uint8_t* from = units + int64_t{u} * unit_bytes;
      for (int i = lane * 16; i < unit_bytes; i += 32 * 16) {
        __pipeline_memcpy_async(to + i, from + i, 16);
      }
    }
    __pipeline_commit();
  };
#pragma unroll
  for (int i = 0; i < kRing; ++i) {
    fetch(Cut::Part() + i * Cut::kShare, ring + i * unit_bytes);
  }
  int at = 0;
  for (int u = Cut::Part(); u < count; u += Cut::kShare) {
    const int64_t first = int64_t{u} * kQuantColumns;
    const int columns =
        static_cast<int>(min(int64_t{kQuantColumns}, k - first));
    uint32_t x[kProducts][2] = {};
#pragma unroll
    for (int q = 0; q < kProducts; ++q) {
      if (q * kProduct < columns) LoadInput(row, first + q * kProduct, x[q]);
    }
    __pipeline_wait_prior(kRing - 1);
    __syncwarp();
    uint8_t* unit = ring + at * unit_bytes;
    AddUnit<kCodes, kMin, T>(
        form, levels, unit, columns,
        [&](int, int column, uint32_t(&in)[2]) {
          in[0] = x[column / kProduct][0];
          in[1] = x[column / kProduct][1];
        },
        sums);
    __syncwarp();
    fetch(u + kRing * Cut::kShare, unit);
    at = at + 1 == kRing ? 0 : at + 1;
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
  // No barrier of the block follows where warps have tiles of their own.
  if (kMany && index * kExpertTile >= n) return;
  const uint8_t* tile =
      w + item.expert * stride_bytes + index * QuantTileBytes(form, k);
  const T* inputs[Cut::kBlocks];
  FindExpertInputs<T>(x, items, item, inputs);
  const auto* factors = reinterpret_cast<const float*>(tile);
  const int lane = threadIdx.x % 32;
  const float factor[] = {factors[lane / 4], factors[lane / 4 + 8]};
  float sums[Cut::kBlocks][4] = {};
  if constexpr (kMany) {
    const int unit_bytes = QuantUnitBytes(form);
    for (int64_t u = 0; u < QuantUnits(k); ++u) {
      const int64_t first = u * kQuantColumns;
      AddUnit<kCodes, kMin, T>(
          form, levels, tile + kQuantHeadBytes + u * unit_bytes,
          static_cast<int>(min(int64_t{kQuantColumns}, k - first)),
          [&](int b, int column, uint32_t(&in)[2]) {
            LoadInput(inputs[b], first + column, in);
          },
          sums);
    }
  } else {
    AddFew<kCodes, kMin, T>(form, levels, tile + kQuantHeadBytes, k, inputs[0],
                            sums);
  }
#pragma unroll
  for (int b = 0; b < Cut::kBlocks; ++b) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[b][j] *= factor[j / 2];
  }
  StoreExpertTile<Y, kMany>(sums, items, item, index, bias, n, y);
}

template <QuantCodes kCodes, bool kMin, typename T, typename Y, bool kMany>
absl::Status Launch(const ExpertLinearDesc& desc,
                    const ExpertLinearParams& params, const QuantForm& form,
                    CudaStream& stream) {
  using Cut = ExpertCut<kMany>;
  const ExpertItems items(desc, params, Cut::kSlots);
  const size_t ring =
      kMany ? 0 : size_t{kExpertWarps} * kRing * QuantUnitBytes(form);
  return LaunchCuda(
      "expert_linear", stream,
      {Cut::GridBlocks(items, desc.gemm.n), 32 * kExpertWarps, ring},
      ExpertQuantised<kCodes, kMin, T, Y, kMany>, CudaMatrix<const T>(params.x),
      reinterpret_cast<const uint8_t*>(params.w.base),
      static_cast<int64_t>(params.w.stride_bytes), params.bias,
      CudaMatrix<Y>(params.y), items, form, LevelBytesOf<T>(form), desc.gemm.n,
      desc.gemm.k);
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
