// What the rows that are written in AVX-512 share. Only for code that is
// compiled for it.
#ifndef INLAY_KERNELS_GEMM_AVX512_H_
#define INLAY_KERNELS_GEMM_AVX512_H_

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own intrinsics, which leave unused operands undefined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f")
namespace inlay {

// Row i of v becomes column i.
HWY_INLINE void Transpose16(__m512i* v) {
  __m512i t[16];
  HWY_UNROLL(16)
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  HWY_UNROLL(16)
  for (int i = 0; i < 16; i += 4) {
    HWY_UNROLL(2)
    for (int j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  }
  // v[4 i + j] has in block b the column 4 b + j of rows 4 i to 4 i + 3.
  HWY_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_shuffle_i32x4(v[j], v[j + 4], 0x88);
    t[j + 4] = _mm512_shuffle_i32x4(v[j], v[j + 4], 0xdd);
    t[j + 8] = _mm512_shuffle_i32x4(v[j + 8], v[j + 12], 0x88);
    t[j + 12] = _mm512_shuffle_i32x4(v[j + 8], v[j + 12], 0xdd);
  }
  HWY_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    v[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    v[j + 4] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0x88);
    v[j + 12] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0xdd);
  }
}

// Of 16; all where `count` is more.
HWY_INLINE __mmask16 FirstLanes(int64_t count) {
  const int64_t lanes = count < 0 ? 0 : count < 16 ? count : 16;
  return static_cast<__mmask16>((1u << lanes) - 1);
}

}  // namespace inlay
HWY_POP_ATTRIBUTES
#endif  // __x86_64__

#endif  // INLAY_KERNELS_GEMM_AVX512_H_
