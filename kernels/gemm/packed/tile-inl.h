// The tile of few rows of x: R rounded ones with the strips of w that a vector
// holds. Included inside the region compiled for an instruction set.
#ifndef INLAY_KERNELS_GEMM_PACKED_TILE_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_TILE_INL_H_

#include "kernels/gemm/packed/activations-inl.h"
#include "kernels/gemm/packed/formats-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// How many products of codes up to `most` and 127 sixteen bits hold, in tiles.
constexpr int TilesOfSum(int most) {
  int tiles = 1;
  while (tiles < kTiles && 2 * tiles * 2 * most * 127 < (1 << 15)) tiles *= 2;
  return tiles;
}

// Compilers take sums of many vectors apart, and then have more of them at once
// than registers. This keeps the order written.
INLAY_INLINE void KeepOrder(__m256i& sum) { asm("" : "+x"(sum)); }

// Adds tiles [t, end) to `sums` as 16-bit sums.
template <class F, int R, int t, int end>
INLAY_INLINE void AddTiles(const uint8_t* codes, const uint8_t* x,
                           __m256i* sums) {
  const __m256i w = F::template Tile<Ymm, t>(codes);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    sums[r] = _mm256_add_epi16(
        sums[r], _mm256_maddubs_epi16(w, Ymm::SetFour(x + kStep * r + 4 * t)));
    KeepOrder(sums[r]);
  }
  if constexpr (t + 1 < end) AddTiles<F, R, t + 1, end>(codes, x, sums);
}

// sums[r] += the products of tiles [t, end) of the strip with row r of x.
template <class F, int R, int t, int end>
INLAY_INLINE void SumTiles(const uint8_t* codes, const uint8_t* x,
                           __m256i* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (F::kMost == 0) {
    // Signed codes: the sign goes over to x.
    const __m256i w = F::template Tile<Ymm, t>(codes);
    const __m256i size = _mm256_abs_epi8(w);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i product = _mm256_maddubs_epi16(
          size, _mm256_sign_epi8(Ymm::SetFour(x + kStep * r + 4 * t), w));
      sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(product, ones));
      KeepOrder(sums[r]);
    }
    if constexpr (t + 1 < end) SumTiles<F, R, t + 1, end>(codes, x, sums);
  } else {
    constexpr int kLast =
        t + TilesOfSum(F::kMost) < end ? t + TilesOfSum(F::kMost) : end;
    __m256i narrow[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) narrow[r] = _mm256_setzero_si256();
    AddTiles<F, R, t, kLast>(codes, x, narrow);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(narrow[r], ones));
    }
    if constexpr (kLast < end) SumTiles<F, R, kLast, end>(codes, x, sums);
  }
}

#ifdef INLAY_PACKED_DOT256
// The same where an instruction does it: signed codes with 128 added. Tiles go
// to `even` and `odd` by turns: the sums of a step would be one chain.
template <class V, class F, int R, int t, int end>
INLAY_INLINE void DotTiles(typename V::At codes, const uint8_t* x,
                           typename V::Bytes* even, typename V::Bytes* odd) {
  const auto w = UnsignedTile<V, F, t>(codes);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    even[r] = V::Dot(even[r], w, V::SetFour(x + kStep * r + 4 * t));
  }
  if constexpr (t + 1 < end) {
    DotTiles<V, F, R, t + 1, end>(codes, x, odd, even);
  }
}
#endif

INLAY_INLINE const float* FactorAt(const uint8_t* factors, int row, size_t at) {
  return reinterpret_cast<const float*>(factors + row * kFactorsBytes + at);
}

// y[r] += the products of half `half` of a step at `step` with those at `x`.
template <class V, class F, int R, int half>
INLAY_INLINE void AddHalf(const typename V::template Header<F>& header,
                          typename V::At step, const uint8_t* x,
                          typename V::Floats* y) {
  constexpr int kTilesOfHalf = kTiles / F::kHalves;
  constexpr int kFirst = half * kTilesOfHalf;
  const uint8_t* factors = x + kStep * R;
  typename V::Bytes sums[R];
  // StepFactors::start is of whole steps.
  static_assert(F::kMost != 0 || F::kHalves == 1);
  if constexpr (V::kDots) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      sums[r] = F::kMost == 0 ? V::SetFour(factors + r * kFactorsBytes +
                                           offsetof(StepFactors, start))
                              : V::NoInts();
    }
    if constexpr (F::kHalves == 2) {
      DotTiles<V, F, R, kFirst, kFirst + kTilesOfHalf>(step + F::kScales, x,
                                                       sums, sums);
    } else {
      typename V::Bytes odd[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) odd[r] = V::NoInts();
      DotTiles<V, F, R, 0, kTiles>(step + F::kScales, x, sums, odd);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r] = V::Add(sums[r], odd[r]);
    }
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] = V::NoInts();
    SumTiles<F, R, kFirst, kFirst + kTilesOfHalf>(step + F::kScales, x, sums);
  }
  typename V::Floats scale, min;
  V::template Factors<F>(header, step, half, &scale, &min);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    y[r] = V::MulAdd(
        V::FromInts(sums[r]),
        V::Mul(scale,
               V::Set(FactorAt(factors, r, offsetof(StepFactors, scale)))),
        y[r]);
  }
  if constexpr (F::kHasMin) {
    constexpr size_t kSum = offsetof(StepFactors, sums) + sizeof(float) * half;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      y[r] = V::MulAdd(min, V::Set(FactorAt(factors, r, kSum)), y[r]);
    }
  }
}

template <class F>
constexpr int64_t StepBytes() {
  return F::kScales + F::Codes::kBytes;
}
template <class F>
constexpr int64_t StripBytes(int64_t k) {
  return k / (kStep * F::kSteps) * (F::kHeader + F::kSteps * StepBytes<F>());
}

// Bytes of a strip asked for in advance: the processor's own prefetchers do not
// keep memory busy.
inline constexpr int64_t kAhead = 2048;

// y: R rows of kStripRows * V::kStrips sums; w: the first of the strips, which
// lie `apart` bytes apart; x: a group of R rows.
template <class V, class F, int R>
__attribute__((noinline)) void Tile(const uint8_t* w, int64_t apart,
                                    const uint8_t* x, int64_t k, float* y) {
  typename V::Floats sums[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = V::NoFloats();
  auto at = V::Strips(w, apart);
  for (int64_t block = 0; block < k / (kStep * F::kSteps); ++block) {
    const typename V::template Header<F> header(at);
    at = at + F::kHeader;
    for (int s = 0; s < F::kSteps; ++s) {
      // Behind its strip's end: the thread's next one.
      V::template Prefetch<StepBytes<F>()>(at + kAhead);
      AddHalf<V, F, R, 0>(header, at, x, sums);
      if constexpr (F::kHalves == 2) AddHalf<V, F, R, 1>(header, at, x, sums);
      at = at + StepBytes<F>();
      x += R * kStepRowBytes;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    V::Store(y + r * kStripRows * V::kStrips, sums[r]);
  }
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_TILE_INL_H_
