// A unit of packed weights times rows of x, by a warp, weights rounded to x's
// type first (rounded_codes.cuh): one chain of mma a sum, so that its bits are
// those of wgmma over the same columns in the same order
// (many_rows_packed_sm90.cu; a test holds them to that).
#ifndef INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_ROUNDED_SM90_CUH_
#define INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_ROUNDED_SM90_CUH_

#include "kernels/gemm/quantised/product_unit_sm90.cuh"
#include "kernels/gemm/quantised/rounded_codes.cuh"

namespace inlay {
namespace {

template <class Form, bool kIsE2M1, typename T, int kTiles, class X>
__device__ void MultiplyRoundedUnitBy(const uint8_t* const (&units)[2],
                                      const X& x, const LevelBytes& levels,
                                      QuantSums<kTiles>& sums) {
  constexpr int kProducts = Form::kGroup / 16;      // of a group
  constexpr int kRowBytes = Form::kHasMin ? 8 : 4;  // of two rows' scales
  const int lane = threadIdx.x % 32;
  RoundedCodes<Form::kCodes, Form::kHasMin, kIsE2M1, T> codes[2];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int r = 0; r < 2; ++r) codes[r].Load(units[r], lane, piece, levels);
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
          codes[r].LoadScales(units[r] + QuantCodeBytes(Form::kCodes) +
                              (product / kProducts * 8 + lane / 4) * kRowBytes);
        }
        uint32_t a[4];
        codes[r].Operand(q, a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          MultiplyTile<T>(sums.v[r][t], a, b[t][q % 2 * 2],
                          b[t][q % 2 * 2 + 1]);
        }
      }
    }
  }
}

// One unit of both tiles, as MultiplyQuantUnit; sums without kRoundedFactor.
template <class Form, typename T, int kTiles, class X>
__device__ void MultiplyRoundedUnit(const uint8_t* const (&units)[2],
                                    const X& x, const LevelBytes& levels,
                                    QuantSums<kTiles>& sums) {
  if constexpr (Form::kCodes == QuantCodes::kTable4) {
    if (levels.e2m1) {
      MultiplyRoundedUnitBy<Form, true, T>(units, x, levels, sums);
      return;
    }
  }
  MultiplyRoundedUnitBy<Form, false, T>(units, x, levels, sums);
}

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_QUANTISED_PRODUCT_ROUNDED_SM90_CUH_
