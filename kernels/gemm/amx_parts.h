// How float32 and f16 weights are cut into parts of bf16, which AMX multiplies:
// for gemm_cpu_amx.cc and gemm_cpu_amx_f16.cc, whose heads say what for. Only
// for code that is compiled for AVX-512.
#ifndef INLAY_KERNELS_GEMM_AMX_PARTS_H_
#define INLAY_KERNELS_GEMM_AMX_PARTS_H_

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/avx512.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
namespace inlay::amx {

HWY_INLINE __m512 HighHalf(__m512 v) {
  return _mm512_and_ps(
      v, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Of finite numbers other than 0 (`of`) the high half of the next one towards
// 0, so that something is left.
HWY_INLINE __m512 HighPart(__mmask16 of, __m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  return HighHalf(_mm512_castsi512_ps(
      _mm512_maskz_sub_epi32(of, bits, _mm512_set1_epi32(1))));
}

// x = parts[0] + parts[1] + parts[2], each in the high half of its lane. What
// is not finite is all in the first part.
HWY_INLINE void Split(__m512 x, __m512* parts) {
  constexpr int kZero = 0x06, kNotFinite = 0x99, kNan = 0x81;
  const __mmask16 number =
      static_cast<__mmask16>(~_mm512_fpclass_ps_mask(x, kZero | kNotFinite));
  const __mmask16 nan = _mm512_fpclass_ps_mask(x, kNan);
  parts[2] = HighPart(number, x);
  const __m512 rest = _mm512_sub_ps(x, parts[2]);
  parts[1] = HighPart(number, rest);
  parts[0] = _mm512_sub_ps(rest, parts[1]);
  // A NaN whose high half alone would be infinity.
  parts[0] =
      _mm512_mask_or_ps(parts[0], nan, parts[0],
                        _mm512_castsi512_ps(_mm512_set1_epi32(0x00400000)));
}

// 32 high halves of floats in their order.
HWY_INLINE __m512i JoinInOrder(__m512 first, __m512 second) {
  alignas(64) static constexpr uint16_t kOdd[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(_mm512_castps_si512(first),
                                   _mm512_load_si512(kOdd),
                                   _mm512_castps_si512(second));
}

// The same with the first 16 in even places, the others in odd ones: one
// instruction.
HWY_INLINE __m512i JoinInPairs(__m512 even, __m512 odd) {
  constexpr __mmask64 kLowHalves = 0x3333333333333333;
  const __m512i high_of_each =
      _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
  return _mm512_mask_shuffle_epi8(_mm512_castps_si512(odd), kLowHalves,
                                  _mm512_castps_si512(even), high_of_each);
}

// The nearer to 0 of v and `most`, with the sign of v. Of NaN: most.
HWY_INLINE __m512 AtMost(__m512 v, float most) {
  constexpr int kLeastMagnitude = 2;
  return _mm512_range_ps(v, _mm512_set1_ps(most), kLeastMagnitude);
}

// v to the nearest bf16, ties to even; what is beyond the largest, infinity.
// Of some NaNs a zero.
HWY_INLINE __m512 ToNearest(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return HighHalf(_mm512_castsi512_ps(_mm512_add_epi32(
      bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)))));
}

// x = high + low up to 2^-17 of x: high to the nearest, then what is left of
// it, up to 2^-8 of x. `high` is finite; low is infinite, or NaN, where x is.
HWY_INLINE void SplitInTwo(__m512 x, __m512& low, __m512& high) {
  constexpr float kMostBF16 = 0x1.fep127f;
  high = AtMost(ToNearest(x), kMostBF16);
  const __m512 rest = _mm512_sub_ps(x, high);
  low = _mm512_mask_mov_ps(ToNearest(rest),
                           _mm512_cmp_ps_mask(rest, rest, _CMP_UNORD_Q), rest);
}

// Weights of f16, widened, are high + low, exactly: high the first 8 bits, low
// the other 3, less than 2^-7 of them. kAny: infinity is the largest number and
// infinity; without it is NaN.
template <bool kAny>
HWY_INLINE void SplitWeights(__m512 w, __m512& low, __m512& high) {
  constexpr float kMostF16 = 65504.0f;
  high = HighHalf(kAny ? AtMost(w, kMostF16) : w);
  low = _mm512_sub_ps(w, high);
}

}  // namespace inlay::amx
HWY_POP_ATTRIBUTES
#endif  // __x86_64__

#endif  // INLAY_KERNELS_GEMM_AMX_PARTS_H_
