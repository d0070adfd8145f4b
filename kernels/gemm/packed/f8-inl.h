// f8_g32 and f8_g128 for gemm_cpu_packed.cc: e4m3 has a range that 8-bit
// integers do not, so these are multiplied in float32, with activations as they
// are. Included there, inside the region compiled for AVX2.
//
// A group: 8 float32 scales, one a row of the strip, then for each element of k
// the codes of 8 rows. An e4m3 moved into the bits of an f16 is its value times
// 2^-8, subnormals included: the conversion of f16 does the rest.
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
    float scale = block.scale * 256.0f;
    for (int i = 0; i < count; ++i) {
      codes[i * kStripRows + row] = block.codes[i];
      // One NaN makes the whole sum NaN, wherever it is.
      if ((block.codes[i] & 0x7f) == 0x7f) {
        scale = std::numeric_limits<float>::quiet_NaN();
      }
    }
    PutLane(header, row, scale);
  }
};

// 8 rows of four elements of k, times 2^-8.
INLAY_INLINE void WidenF8(const uint8_t* p, __m256* w) {
  const __m256i codes = LoadBytes(p);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xbfff));
  // Bytes to the top of 16 bits; a step to the right makes room in the
  // exponent, whose first bit is then the sign's copy.
  const __m256i even = _mm256_and_si256(
      _mm256_srai_epi16(_mm256_unpacklo_epi8(zero, codes), 1), mask);
  const __m256i odd = _mm256_and_si256(
      _mm256_srai_epi16(_mm256_unpackhi_epi8(zero, codes), 1), mask);
  w[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(even));
  w[1] = _mm256_cvtph_ps(_mm256_castsi256_si128(odd));
  w[2] = _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1));
  w[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1));
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
