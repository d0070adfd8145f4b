// f8_g32 and f8_g128 for gemm_cpu_packed.cc: e4m3 has a range that 8-bit
// integers do not, so these are multiplied in float32, with activations as they
// are. Included there, inside the region compiled for AVX2.
//
// A group: 8 float32 scales, one a row of the strip, then 32 bytes for four
// elements of k: those of rows 0 to 3, element by element, then those of rows 4
// to 7, so that what is unpacked within halves of a vector is an element. With
// 120 added to the exponent an e4m3's bits are the upper ones of a float32; not
// so zeros and subnormals, which are few: 32 codes with one among them go
// through f16, in whose bits an e4m3 is its value times 2^-8. Converting all
// from f16 takes twice as long as memory does.
//
// y = fma(scale, sum of the group, y), groups in ascending order; a group's sum
// has four parts, element i goes to part i % 4 in ascending order, and they are
// added as (0 + 1) + (2 + 3).
#ifndef INLAY_KERNELS_GEMM_PACKED_F8_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_F8_INL_H_

#include "kernels/gemm/packed/formats-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

template <DType dtype, int count>
struct F8 {
  static constexpr DType kDType = dtype;
  static constexpr int kCount = count;
  static constexpr int kSteps = count / kStep;
  static constexpr int kHeader = 32;
  static constexpr int kScales = 0;
  using Codes = Planes<8, 0>;  // for their size

  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* codes) {
    const auto block = LoadBlock<F8Group<count>>(src, 0);
    float scale = block.scale;
    for (int i = 0; i < count; ++i) {
      codes[i / 4 * kTileBytes + row / 4 * 16 + i % 4 * 4 + row % 4] =
          block.codes[i];
      // One NaN makes the whole sum NaN, wherever it is.
      if ((block.codes[i] & 0x7f) == 0x7f) {
        scale = std::numeric_limits<float>::quiet_NaN();
      }
    }
    PutLane(header, row, scale);
  }
};

// Of 16 codes, each in the upper byte of 16 bits: two elements of 8 rows.
INLAY_INLINE void WidenAnyF8(__m256i codes, __m256* first, __m256* second) {
  // A step to the right makes room in the exponent, whose first bit is then the
  // sign's copy.
  const __m256i halves = _mm256_permute4x64_epi64(
      _mm256_and_si256(_mm256_srai_epi16(codes, 1),
                       _mm256_set1_epi16(static_cast<int16_t>(0xbfff))),
      0xd8);
  const __m256 unit = _mm256_set1_ps(256.0f);
  *first = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), unit);
  *second =
      _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), unit);
}

// 8 rows of four elements of k.
INLAY_INLINE void WidenF8(const uint8_t* p, __m256* w) {
  const __m256i codes = LoadBytes(p);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i low = _mm256_unpacklo_epi8(zero, codes);
  const __m256i high = _mm256_unpackhi_epi8(zero, codes);
  const __m256i exponents = _mm256_and_si256(codes, _mm256_set1_epi8(0x78));
  if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(exponents, zero)) != 0)
      [[unlikely]] {
    WidenAnyF8(low, &w[0], &w[1]);
    WidenAnyF8(high, &w[2], &w[3]);
    return;
  }
  // The sign's copies go, 120 comes to the exponent.
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0x87f0));
  const __m256i bias = _mm256_set1_epi16(120 << 7);
  const __m256i l =
      _mm256_add_epi16(_mm256_and_si256(_mm256_srai_epi16(low, 4), mask), bias);
  const __m256i h = _mm256_add_epi16(
      _mm256_and_si256(_mm256_srai_epi16(high, 4), mask), bias);
  w[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, l));
  w[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, l));
  w[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, h));
  w[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, h));
}

// y: R rows of kStripRows sums; w: a strip; x: the first row, x_stride apart.
template <class F, int R>
__attribute__((noinline)) void F8Tile(const uint8_t* w, const float* x,
                                      int64_t x_stride, int64_t k, float* y) {
  __m256 sums[R];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) sums[r] = _mm256_setzero_ps();
  for (int64_t group = 0; group < k / F::kCount; ++group) {
    __m256 parts[R][4];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) parts[r][j] = _mm256_setzero_ps();
    }
    const __m256 scale = LoadFloats(w);
    w += F::kHeader;
    for (int i = 0; i < F::kCount; i += 4, w += 4 * kStripRows, x += 4) {
      __m256 wide[4];
      WidenF8(w, wide);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          parts[r][j] = _mm256_fmadd_ps(
              _mm256_broadcast_ss(x + r * x_stride + j), wide[j], parts[r][j]);
        }
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      const __m256 sum = _mm256_add_ps(_mm256_add_ps(parts[r][0], parts[r][1]),
                                       _mm256_add_ps(parts[r][2], parts[r][3]));
      sums[r] = _mm256_fmadd_ps(scale, sum, sums[r]);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) _mm256_storeu_ps(y + r * kStripRows, sums[r]);
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_F8_INL_H_
