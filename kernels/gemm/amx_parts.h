// How float32 and 16-bit weights are cut into parts of bf16, which AMX
// multiplies: for gemm_cpu_amx.cc, whose head says what for. Only for code that
// is compiled for AVX-512.
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

inline constexpr int kParts = 3;  // of x: low, middle, high
inline constexpr int64_t kTileSize = kTileRows * kTileBytes;

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

// How 32 weights become a row of each of kParts tiles, kTileSize apart, the low
// part first, and in which order 32 high halves of floats lie in a row.
struct BF16Weights {
  static constexpr int64_t kParts = 1;
  static HWY_INLINE void Store(const uint16_t* w, std::byte* to) {
    _mm512_store_si512(to, _mm512_loadu_si512(w));
  }
  static HWY_INLINE __m512i Join(__m512 first, __m512 second) {
    alignas(64) static constexpr uint16_t kOdd[32] = {
        1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_permutex2var_epi16(_mm512_castps_si512(first),
                                     _mm512_load_si512(kOdd),
                                     _mm512_castps_si512(second));
  }
};

// The first 16 in even places, the others in odd ones: two instructions, where
// their order takes six of one port.
struct F16Weights {
  static constexpr int64_t kParts = 2;
  // Infinity minus the largest number is infinity.
  static HWY_INLINE void Store(const uint16_t* w, std::byte* to) {
    const __m512 first = Load(w);
    const __m512 second = Load(w + 16);
    const __m512 first_high = HighHalf(Finite(first));
    const __m512 second_high = HighHalf(Finite(second));
    _mm512_store_si512(to, Join(_mm512_sub_ps(first, first_high),
                                _mm512_sub_ps(second, second_high)));
    _mm512_store_si512(to + kTileSize, Join(first_high, second_high));
  }
  // Low halves are 0, but of NaNs, whose row is NaN whatever is beside them.
  static HWY_INLINE __m512i Join(__m512 first, __m512 second) {
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                           _mm512_castps_si512(second));
  }

 private:
  static HWY_INLINE __m512 Load(const uint16_t* w) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
  }
  // The nearer to 0 of v and the largest number, with the sign of v.
  static HWY_INLINE __m512 Finite(__m512 v) {
    constexpr int kLeastMagnitude = 2;
    return _mm512_range_ps(v, _mm512_set1_ps(65504.0f), kLeastMagnitude);
  }
};

}  // namespace inlay::amx
HWY_POP_ATTRIBUTES
#endif  // __x86_64__

#endif  // INLAY_KERNELS_GEMM_AMX_PARTS_H_
