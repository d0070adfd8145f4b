// Activations of the rows cpu_packed* in 8 bits: blocks of 32 with a float32
// scale. Included inside the region compiled for AVX2 or more.
#ifndef INLAY_KERNELS_GEMM_PACKED_ACTIVATIONS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_ACTIVATIONS_INL_H_

#include "kernels/gemm/packed/layout.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Rows of x that a tile takes (more have panels: panel-inl.h).
inline constexpr int kTileRows = 2;

// What a step of a row of x is besides its codes.
struct StepFactors {
  float scale;
  // scale * sum of the codes: of all 32, or of either 16 for weights that have
  // scales of 16.
  float sums[2];
  // -128 * sum of all codes: where sums of their products begin with weights'
  // codes that have 128 added.
  int32_t start;
};
inline constexpr int kFactorsBytes = sizeof(StepFactors);
inline constexpr int64_t kStepRowBytes = kStep + kFactorsBytes;

// Rounded rows lie in groups (the last may have fewer). A group is its steps
// one after another, each the codes of its rows, 32 bytes a row, then the
// factors of its rows: a tile reads it from front to back.
constexpr int64_t RoundedRowBytes(int64_t k) {
  return k / kStep * kStepRowBytes;
}

// Eight values of x from element i on.
INLAY_INLINE __m256 LoadInputs(const float* x, const int32_t* permutation,
                               int64_t i) {
  if (permutation == nullptr) return _mm256_loadu_ps(x + i);
  return _mm256_i32gather_ps(
      x, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(permutation + i)),
      sizeof(float));
}

// Row `row` of the group of `rows` at `group`; permutation: GemmParams';
// halves: of a step, for weights' scales. A block's largest magnitude becomes
// 127. What is not finite makes the scale NaN, and so every output of the row.
inline void RoundRow(const float* x, const int32_t* permutation, int64_t k,
                     int row, int rows, int halves, uint8_t* group) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t i = 0; i < k; i += kStep, group += rows * kStepRowBytes) {
    // By name: not every compiler keeps elements of an array in registers.
    const __m256 a = LoadInputs(x, permutation, i);
    const __m256 b = LoadInputs(x, permutation, i + 8);
    const __m256 c = LoadInputs(x, permutation, i + 16);
    const __m256 d = LoadInputs(x, permutation, i + 24);
    // As integers, so that NaN is larger than everything.
    const auto size = [magnitude](__m256 v) {
      return _mm256_and_si256(_mm256_castps_si256(v), magnitude);
    };
    const __m256i most = _mm256_max_epi32(_mm256_max_epi32(size(a), size(b)),
                                          _mm256_max_epi32(size(c), size(d)));
    __m128i lanes = _mm_max_epi32(_mm256_castsi256_si128(most),
                                  _mm256_extracti128_si256(most, 1));
    lanes = _mm_max_epi32(lanes, _mm_shuffle_epi32(lanes, 0x4e));
    lanes = _mm_max_epi32(lanes, _mm_shuffle_epi32(lanes, 0xb1));
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(lanes));
    float scale = largest / 127.0f;
    // Too small for an inverse: as zeros.
    if (scale < FLT_MIN) scale = 0.0f;
    if (!(largest <= FLT_MAX)) scale = largest - largest;
    const __m256 inverse = _mm256_set1_ps(scale > 0.0f ? 1.0f / scale : 0.0f);
    const auto rounded = [inverse](__m256 v) {
      return _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse));
    };
    const __m256i packed = _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(rounded(a), rounded(b)),
                           _mm256_packs_epi32(rounded(c), rounded(d))),
        order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(group + row * kStep),
                        packed);
    // Lanes 0 to 3 have the sums of the first 16.
    const __m256i sums =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), packed),
                          _mm256_set1_epi16(1));
    __m128i low = _mm256_castsi256_si128(sums);
    __m128i high = _mm256_extracti128_si256(sums, 1);
    low = _mm_hadd_epi32(low, high);
    low = _mm_hadd_epi32(low, low);
    const int first = _mm_cvtsi128_si32(low);
    const int second = _mm_extract_epi32(low, 1);
    const StepFactors factors = {
        scale,
        {scale * static_cast<float>(halves == 2 ? first : first + second),
         scale * static_cast<float>(second)},
        -128 * (first + second)};
    std::memcpy(group + rows * kStep + row * kFactorsBytes, &factors,
                sizeof(factors));
  }
}

// The same of a row of zeros, which fills a group up.
inline void RoundNothing(int64_t k, int row, int rows, uint8_t* group) {
  for (int64_t i = 0; i < k; i += kStep, group += rows * kStepRowBytes) {
    std::memset(group + row * kStep, 0, kStep);
    std::memset(group + rows * kStep + row * kFactorsBytes, 0, kFactorsBytes);
  }
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_ACTIVATIONS_INL_H_
