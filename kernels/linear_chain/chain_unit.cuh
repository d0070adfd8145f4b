// A unit of packed weights (gemm/quantised/layout.h) times up to 8 rows of x by
// a warp.
#ifndef INLAY_KERNELS_LINEAR_CHAIN_CHAIN_UNIT_CUH_
#define INLAY_KERNELS_LINEAR_CHAIN_CHAIN_UNIT_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/layout.h"

namespace inlay {

inline constexpr int kChainProduct = 16;  // columns of one mma

template <QuantCodes kCodesOf, int kGroupOf, bool kMinOf>
struct ChainForm {
  static constexpr QuantCodes kCodes = kCodesOf;
  static constexpr int kGroup = kGroupOf;
  static constexpr bool kMin = kMinOf;
  static constexpr int kGroups = kQuantColumns / kGroup;  // of a unit
  static constexpr int kUnitBytes = QuantUnitBytes(kCodes, kGroup, kMin);
  // As in gemm/quantised/product_sm90.cuh: where sums of x are there (minima
  // need them), bf16's offset stays in the levels.
  template <typename T>
  using Decoder =
      QuantDecoder<kCodes, T,
                   kMin && kIsBf16<T> && kCodes != QuantCodes::kInt8>;
};

// Adds a unit's products, without the factors of its rows: sums[0] and [1] are
// of row lane / 4 and columns 2 (lane % 4) and one more of x's rows, [2] and
// [3] of row lane / 4 + 8. `x`: where ldmatrix finds the lane's part of the
// unit's first 32 columns; `x_sums`: sums over the first group of the lane's
// two columns, those of the next `sums_stride` floats on.
template <class Form, typename T>
__device__ void AddChainUnit(const uint8_t* unit, uint32_t x,
                             const float* x_sums, int sums_stride,
                             float (&sums)[4]) {
  using Decoder = typename Form::template Decoder<T>;
  constexpr int kInGroup = Form::kGroup / kChainProduct;
  // Of two rows, and of a group.
  constexpr int kRowBytes = Form::kMin ? 8 : 4;
  constexpr int kGroupBytes = kQuantRows / 2 * kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* scales =
      unit + QuantCodeBytes(Form::kCodes) + lane / 4 * kRowBytes;
  float part[4];
  uint32_t b[4];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    Decoder decoder;
    decoder.Load(unit, lane, piece, LevelBytes());
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int product = piece * 4 + q;
      if (product % 2 == 0) {
        asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
            : "r"(x + product * kChainProduct * 2));
      }
      if (product % kInGroup == 0) {
#pragma unroll
        for (int j = 0; j < 4; ++j) part[j] = 0.0f;
      }
      uint32_t a[4];
      decoder.Operand(q, a);
      MultiplyTile<T>(part, a, b[product % 2 * 2], b[product % 2 * 2 + 1]);
      if (product % kInGroup != kInGroup - 1) continue;
      const int group = product / kInGroup;
      const uint8_t* at = scales + group * kGroupBytes;
      uint2 bits = {};
      if constexpr (Form::kMin) {
        bits = *reinterpret_cast<const uint2*>(at);
      } else {
        bits.x = *reinterpret_cast<const uint32_t*>(at);
      }
      const float2 scale = WidenPair<__half>(bits.x);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[j] = fmaf(j < 2 ? scale.x : scale.y, part[j], sums[j]);
      }
      if constexpr (Form::kMin) {
        const float2 min = WidenPair<__half>(bits.y);
        const float low = fmaf(-Decoder::kOffset, scale.x, min.x);
        const float high = fmaf(-Decoder::kOffset, scale.y, min.y);
        const float2 of_x =
            *reinterpret_cast<const float2*>(x_sums + group * sums_stride);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[j] =
              fmaf(j < 2 ? low : high, j % 2 == 0 ? of_x.x : of_x.y, sums[j]);
        }
      }
    }
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_CHAIN_CHAIN_UNIT_CUH_
