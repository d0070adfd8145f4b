// A unit of packed weights times rows of x, by a warp, in the tensor cores'
// 16-bit types: what kernels for few rows of x on Hopper share.
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_UNIT_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_UNIT_SM90_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/gemm/gemv_mma.cuh"
#include "kernels/gemm/gemv_sm90.cuh"
#include "kernels/gemm/quantised/decode.cuh"
#include "kernels/gemm/quantised/form_type.h"
#include "kernels/gemm/quantised/operand_scales.cuh"

namespace inlay {
namespace {

template <int kTiles>
struct QuantSums {
  float v[2][kTiles][4] = {};
};

// Adds scale times the sums of a group, and min times the sums of x.
template <class Form, typename Decoder, int kTiles>
__device__ void AddQuantGroup(const uint8_t* unit, int group, int row_tile,
                              const float (&part)[kTiles][4],
                              const float (&sums_x)[kTiles][4],
                              QuantSums<kTiles>& sums) {
  const uint8_t* at =
      unit + QuantCodeBytes(Form::kCodes) +
      (group * 8 + threadIdx.x % 32 / 4) * (Form::kHasMin ? 8 : 4);
  if constexpr (Form::kHasMin) {
    const uint2 bits = *reinterpret_cast<const uint2*>(at);
    const float2 scale = WidenPair<__half>(bits.x);
    const float2 min = WidenPair<__half>(bits.y);
    const float low = fmaf(-Decoder::kOffset, scale.x, min.x);
    const float high = fmaf(-Decoder::kOffset, scale.y, min.y);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.v[row_tile][t][i];
        sum = fmaf(i < 2 ? scale.x : scale.y, part[t][i], sum);
        sum = fmaf(i < 2 ? low : high, sums_x[t][i], sum);
      }
    }
  } else {
    const float2 scale =
        WidenPair<__half>(*reinterpret_cast<const uint32_t*>(at));
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.v[row_tile][t][i];
        sum = fmaf(i < 2 ? scale.x : scale.y, part[t][i], sum);
      }
    }
  }
}

template <class Form, class Decoder, typename T, int kTiles, class X>
__device__ void MultiplyQuantUnitBy(const uint8_t* const (&units)[2],
                                    const X& x, const LevelBytes& levels,
                                    QuantSums<kTiles>& sums) {
  constexpr uint32_t kOnes = kIsBf16<T> ? 0x3f803f80u : 0x3c003c00u;
  constexpr int kProducts = Form::kGroup / 16;  // of a group
  const int lane = threadIdx.x % 32;
  const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  float part[2][kTiles][4];
  float sums_x[kTiles][4];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    Decoder decoders[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) decoders[r].Load(units[r], lane, piece, levels);
    uint32_t b[kTiles][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int product = piece * 4 + q;
      if (q % 2 == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          LoadMatrices(x.At(t, product), b[t]);
        }
      }
      if (product % kProducts == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            part[0][t][i] = part[1][t][i] = sums_x[t][i] = 0.0f;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint32_t a[4];
        decoders[r].Operand(q, a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(part[r][t], a, b[t][q % 2 * 2], b[t][q % 2 * 2 + 1]);
        }
      }
      if constexpr (Form::kHasMin) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(sums_x[t], ones, b[t][q % 2 * 2],
                          b[t][q % 2 * 2 + 1]);
        }
      }
      if (product % kProducts == kProducts - 1) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          AddQuantGroup<Form, Decoder, kTiles>(units[r], product / kProducts, r,
                                               part[r], sums_x, sums);
        }
      }
    }
  }
}

// One unit of both tiles. x.At(t, product): where ldmatrix finds the lane's
// part of the 32 columns from product * 16 on of x's t-th 8 rows.
template <class Form, typename T, int kTiles, class X>
__device__ void MultiplyQuantUnit(const uint8_t* const (&units)[2], const X& x,
                                  const LevelBytes& levels,
                                  QuantSums<kTiles>& sums) {
  using Decoder = QuantDecoder<Form::kCodes, T,
                               Form::kHasMin && kIsBf16<T> &&
                                   Form::kCodes != QuantCodes::kInt8>;
  if constexpr (Form::kCodes == QuantCodes::kTable4) {
    if (levels.e2m1) {
      MultiplyQuantUnitBy<Form, E2M1Decoder<T>, T>(units, x, levels, sums);
      return;
    }
  }
  MultiplyQuantUnitBy<Form, Decoder, T>(units, x, levels, sums);
}

template <class Form, class Decoder, typename T, int kTiles, class X>
__device__ void MultiplyScaledUnitBy(const uint8_t* const (&units)[2],
                                     const X& x, const LevelBytes& levels,
                                     QuantSums<kTiles>& sums) {
  constexpr int kProducts = Form::kGroup / 16;      // of a group
  constexpr int kRowBytes = Form::kHasMin ? 8 : 4;  // of two rows' scales
  const int lane = threadIdx.x % 32;
  OperandScales<T, Form::kHasMin> scales[2];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    Decoder decoders[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) decoders[r].Load(units[r], lane, piece, levels);
    uint32_t b[kTiles][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int product = piece * 4 + q;
      if (q % 2 == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) LoadMatrices(x.At(t, product), b[t]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (product % kProducts == 0) {
          scales[r].Load(units[r] + QuantCodeBytes(Form::kCodes) +
                         (product / kProducts * 8 + lane / 4) * kRowBytes);
        }
        uint32_t a[4];
        decoders[r].Operand(q, a);
        scales[r].Apply(a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(sums.v[r][t], a, b[t][q % 2 * 2],
                          b[t][q % 2 * 2 + 1]);
        }
      }
    }
  }
}

// The same of weights that are scaled, and rounded to T, first. Sums: without
// kOperandFactor.
template <class Form, typename T, int kTiles, class X>
__device__ void MultiplyScaledUnit(const uint8_t* const (&units)[2], const X& x,
                                   const LevelBytes& levels,
                                   QuantSums<kTiles>& sums) {
  if constexpr (Form::kCodes == QuantCodes::kTable4) {
    if (levels.e2m1) {
      MultiplyScaledUnitBy<Form, E2M1Decoder<T>, T>(units, x, levels, sums);
      return;
    }
  }
  MultiplyScaledUnitBy<Form, QuantDecoder<Form::kCodes, T>, T>(units, x, levels,
                                                               sums);
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_UNIT_SM90_CUH_
