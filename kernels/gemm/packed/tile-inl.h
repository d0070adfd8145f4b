// The tile of gemm_cpu_packed.cc: R rows of rounded x with a strip of w.
// Included there, inside the region compiled for AVX2.
#ifndef INLAY_KERNELS_GEMM_PACKED_TILE_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_TILE_INL_H_

#include "kernels/gemm/packed/activations-inl.h"
#include "kernels/gemm/packed/formats-inl.h"

namespace inlay::packed {

// How many products of codes up to `most` and 127 sixteen bits hold, in tiles.
constexpr int TilesOfSum(int most) {
  int tiles = 1;
  while (tiles < kTiles && 2 * tiles * 2 * most * 127 < (1 << 15)) tiles *= 2;
  return tiles;
}

INLAY_INLINE __m256i Broadcast(const uint8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return _mm256_set1_epi32(four);
}

// Compilers take sums of many vectors apart, and then have more of them at once
// than registers. This keeps the order written.
INLAY_INLINE void KeepOrder(__m256i& sum) { asm("" : "+x"(sum)); }

// Adds tiles [t, end) to `sums` as 16-bit sums.
template <class F, int R, int t, int end>
INLAY_INLINE void AddTiles(const uint8_t* codes, const uint8_t* x,
                           __m256i* sums) {
  const __m256i w = F::template Tile<t>(codes);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    sums[r] = _mm256_add_epi16(
        sums[r], _mm256_maddubs_epi16(w, Broadcast(x + kStep * r + 4 * t)));
    KeepOrder(sums[r]);
  }
  if constexpr (t + 1 < end) AddTiles<F, R, t + 1, end>(codes, x, sums);
}

// sums[r] = the products of tiles [t, end) of the strip with row r of x.
template <class F, int R, int t, int end>
INLAY_INLINE void SumTiles(const uint8_t* codes, const uint8_t* x,
                           __m256i* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (F::kMost == 0) {
    // Signed codes: the sign goes over to x.
    const __m256i w = F::template Tile<t>(codes);
    const __m256i size = _mm256_abs_epi8(w);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i product = _mm256_maddubs_epi16(
          size, _mm256_sign_epi8(Broadcast(x + kStep * r + 4 * t), w));
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

// y[r] += the products of half `half` of a step at `step` with those at `x`.
template <class F, int R, int half, typename Header>
INLAY_INLINE void AddHalf(const Header& header, const uint8_t* step,
                          const uint8_t* x, __m256* y) {
  constexpr int kTilesOfHalf = kTiles / F::kHalves;
  __m256i sums[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_si256();
  SumTiles<F, R, half * kTilesOfHalf, (half + 1) * kTilesOfHalf>(
      step + F::kScales, x, sums);
  const float* factors = reinterpret_cast<const float*>(x + kStep * R);
  constexpr int kFactors = kFactorsBytes / sizeof(float);
  constexpr int kSum = F::kHalves == 1 ? 1 : 2 + half;
  const __m256 scale = F::Scale(header, step, half);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    y[r] = _mm256_fmadd_ps(
        _mm256_cvtepi32_ps(sums[r]),
        _mm256_mul_ps(scale, _mm256_broadcast_ss(factors + r * kFactors)),
        y[r]);
  }
  if constexpr (F::kHasMin) {
    const __m256 min = F::Min(header, step, half, scale);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      y[r] = _mm256_fmadd_ps(
          min, _mm256_broadcast_ss(factors + r * kFactors + kSum), y[r]);
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

// y: R rows of kStripRows sums; w: a strip; x: a group of R rows.
template <class F, int R>
__attribute__((noinline)) void Tile(const uint8_t* w, const uint8_t* x,
                                    int64_t k, float* y) {
  __m256 sums[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_ps();
  for (int64_t block = 0; block < k / (kStep * F::kSteps); ++block) {
    const auto header = F::Load(w);
    w += F::kHeader;
    for (int s = 0; s < F::kSteps; ++s) {
      AddHalf<F, R, 0>(header, w, x, sums);
      if constexpr (F::kHalves == 2) AddHalf<F, R, 1>(header, w, x, sums);
      w += StepBytes<F>();
      x += R * kStepRowBytes;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) _mm256_storeu_ps(y + r * kStripRows, sums[r]);
}

}  // namespace inlay::packed

#endif  // INLAY_KERNELS_GEMM_PACKED_TILE_INL_H_
