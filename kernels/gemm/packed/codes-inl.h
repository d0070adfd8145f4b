// What formats-inl.h's structs are made of: a header's and a step's numbers as
// vectors, and the codes of a tile, from their planes, as levels or for
// products without signs. Included inside the region compiled for AVX2 or more.
// Layouts: layout.h.
#ifndef INLAY_KERNELS_GEMM_PACKED_CODES_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_CODES_INL_H_

#include "kernels/gemm/packed/vectors-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Eight f16.
INLAY_INLINE __m256 LoadHalves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
INLAY_INLINE __m256 LoadFloats(const uint8_t* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
// Eight bytes as integers.
INLAY_INLINE __m256 LoadU8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
INLAY_INLINE __m256 LoadI8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// The bits of tile t in a plane at bit kFrom, with others around them.
template <class V, int kBits, int kFrom, int t>
INLAY_INLINE typename V::Bytes PlaneTile(typename V::At plane) {
  constexpr int kShift = Plane<kBits>::ShiftOf(t);
  auto v = V::Load(plane + Plane<kBits>::ByteOf(t));
  if constexpr (kShift > kFrom) v = V::template Right<kShift - kFrom>(v);
  if constexpr (kShift < kFrom) v = V::template Left<kFrom - kShift>(v);
  return v;
}

template <class V, class Codes, int t>
INLAY_INLINE typename V::Bytes CodesTile(typename V::At p) {
  constexpr int kLow = Codes::kLowBits, kHigh = Codes::kHighBits;
  // The same masks for all tiles.
  constexpr int kLowMask = (1 << kLow) - 1;
  constexpr int kHighMask = ((1 << kHigh) - 1) << kLow;
  auto v = PlaneTile<V, kLow, 0, t>(p);
  if constexpr (kHigh > 0) {
    v = V::template Merge<kLowMask, kHighMask>(
        v, PlaneTile<V, kHigh, kLow, t>(p + Codes::kLowBytes));
  } else if constexpr (kLow < 8) {
    v = V::And(v, V::Set(static_cast<char>(kLowMask)));
  }
  return v;
}

// levels[code] of a tile; plus 128 where to_unsigned.
template <class V, class Codes, int t, bool to_unsigned = false>
INLAY_INLINE typename V::Bytes LevelsTile(const int8_t* levels,
                                          typename V::At p) {
  __m128i table = LoadTable(levels);
  if constexpr (to_unsigned) {
    table = _mm_xor_si128(table, _mm_set1_epi8(-128));
  }
  if constexpr (V::kStrips == 2 && Codes::kLowBits == 2 &&
                Codes::kHighBits == 1) {
    // Two tiles of a pair share what is shifted: low bits of the one are bits 0
    // and 1 of an index, of the other 2 and 3, and the high bit is one of the
    // two others, whose second one the table does not look at.
    constexpr int kPair = t / 2 * 2;
    constexpr bool kOdd = t % 2 == 1;
    constexpr int kLowMask = kOdd ? 12 : 3;
    const __m128i order =
        kOdd ? _mm_setr_epi8(0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7)
             : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    constexpr int kHighAt = kOdd ? 0 : 2;
    const auto high = V::And(
        PlaneTile<V, 1, kHighAt, kPair>(p + Codes::kLowBytes), V::Set(15));
    return V::LookUp(
        _mm_shuffle_epi8(table, order),
        V::template Select<kLowMask>(PlaneTile<V, 2, 0, kPair>(p), high));
  } else {
    return V::LookUp(table, CodesTile<V, Codes, t>(p));
  }
}

// The codes of a tile for products whose operand has no signs: signed ones plus
// 128.
template <class V, class F, int t>
INLAY_INLINE typename V::Bytes UnsignedTile(typename V::At p) {
  if constexpr (F::kMost != 0) {
    return F::template Tile<V, t>(p);
  } else if constexpr (requires { F::kLevels; }) {
    return LevelsTile<V, typename F::Codes, t, true>(F::kLevels, p);
  } else {
    return V::Unsigned(F::template Tile<V, t>(p));
  }
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_CODES_INL_H_
