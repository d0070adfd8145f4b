// How many strips the rows cpu_packed* take at once, and the instructions on
// their codes. Included inside the region compiled for an instruction set.
//
// A struct of vectors has
//   kStrips       strips side by side in a vector
//   kDots         products of bytes are added to 32 bits by one instruction:
//                 INLAY_PACKED_DOT256, if that is defined, and with
//                 INLAY_PACKED_VNNI that of 64 bytes
//   At            where the strips' bytes are; At + bytes
//   Header<F>     a block's headers, of all strips
//   Factors<F>()  scale and, where F has one, minimum of all their rows
#ifndef INLAY_KERNELS_GEMM_PACKED_VECTORS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_VECTORS_INL_H_

#include "kernels/gemm/packed/layout.h"

namespace inlay::packed::INLAY_PACKED_ISA {

INLAY_INLINE __m256i LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
INLAY_INLINE __m128i LoadTable(const int8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
INLAY_INLINE int32_t LoadFour(const uint8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  return four;
}

template <int64_t bytes>
INLAY_INLINE void PrefetchBytes(const uint8_t* p) {
  constexpr int64_t kLine = 64;
#pragma GCC unroll 8
  for (int64_t i = 0; i < bytes; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
  }
}

// One strip in 32 bytes: AVX2.
struct Ymm {
  static constexpr int kStrips = 1;
#ifdef INLAY_PACKED_DOT256
  static constexpr bool kDots = true;
#else
  static constexpr bool kDots = false;
#endif
  using At = const uint8_t*;
  using Bytes = __m256i;
  using Floats = __m256;
  template <class F>
  struct Header {
    decltype(F::Load(nullptr)) of;
    INLAY_INLINE explicit Header(At p) : of(F::Load(p)) {}
  };

  INLAY_INLINE static At Strips(const uint8_t* first, int64_t) { return first; }
  template <class F>
  INLAY_INLINE static void Factors(const Header<F>& header, At step, int half,
                                   Floats* scale, Floats* min) {
    *scale = F::Scale(header.of, step, half);
    if constexpr (F::kHasMin) *min = F::Min(header.of, step, half, *scale);
  }

  // Asks for `bytes` bytes of each strip.
  template <int64_t bytes>
  INLAY_INLINE static void Prefetch(At p) {
    PrefetchBytes<bytes>(p);
  }
  INLAY_INLINE static Bytes Load(At p) { return LoadBytes(p); }
  INLAY_INLINE static Bytes Set(char byte) { return _mm256_set1_epi8(byte); }
  INLAY_INLINE static Bytes SetFour(const uint8_t* p) {
    return _mm256_set1_epi32(LoadFour(p));
  }
  // Of 16 bits each.
  template <int count>
  INLAY_INLINE static Bytes Right(Bytes v) {
    return _mm256_srli_epi16(v, count);
  }
  template <int count>
  INLAY_INLINE static Bytes Left(Bytes v) {
    return _mm256_slli_epi16(v, count);
  }
  INLAY_INLINE static Bytes And(Bytes a, Bytes b) {
    return _mm256_and_si256(a, b);
  }
  // The bits of `low_mask` of low, and those of `high_mask` of high.
  template <int low_mask, int high_mask>
  INLAY_INLINE static Bytes Merge(Bytes low, Bytes high) {
    return _mm256_or_si256(And(low, Set(static_cast<char>(low_mask))),
                           And(high, Set(static_cast<char>(high_mask))));
  }
  // levels[code], 16 of them.
  INLAY_INLINE static Bytes LookUp(__m128i levels, Bytes codes) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), codes);
  }

#ifdef INLAY_PACKED_DOT256
  // Signed bytes plus 128, for an instruction whose one operand is unsigned.
  INLAY_INLINE static Bytes Unsigned(Bytes v) {
    return _mm256_xor_si256(v, Set(static_cast<char>(-128)));
  }
  // sums + the products of unsigned with signed bytes, four to a lane.
  INLAY_INLINE static Bytes Dot(Bytes sums, Bytes codes, Bytes x) {
    return INLAY_PACKED_DOT256(sums, codes, x);
  }
  INLAY_INLINE static Bytes Add(Bytes a, Bytes b) {
    return _mm256_add_epi32(a, b);
  }
#endif

  INLAY_INLINE static Bytes NoInts() { return _mm256_setzero_si256(); }
  INLAY_INLINE static Floats FromInts(Bytes v) { return _mm256_cvtepi32_ps(v); }
  INLAY_INLINE static Floats NoFloats() { return _mm256_setzero_ps(); }
  INLAY_INLINE static Floats Set(const float* p) {
    return _mm256_broadcast_ss(p);
  }
  INLAY_INLINE static Floats Mul(Floats a, Floats b) {
    return _mm256_mul_ps(a, b);
  }
  INLAY_INLINE static Floats MulAdd(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  INLAY_INLINE static void Store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
  INLAY_INLINE static Floats LoadSums(const float* p) {
    return _mm256_loadu_ps(p);
  }
  // Whole vectors, as they are.
  INLAY_INLINE static void Put(uint8_t* p, Bytes v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  INLAY_INLINE static Bytes Get(const uint8_t* p) { return LoadBytes(p); }
};

#ifdef INLAY_PACKED_VNNI
// Two strips in 64 bytes: AVX-512 with VNNI.
struct Zmm {
  static constexpr int kStrips = 2;
  static constexpr bool kDots = true;
  struct At {
    const uint8_t* p;
    int64_t apart;  // from a strip to the next one
    INLAY_INLINE At operator+(int64_t bytes) const {
      return {p + bytes, apart};
    }
    INLAY_INLINE const uint8_t* second() const { return p + apart; }
  };
  using Bytes = __m512i;
  using Floats = __m512;
  template <class F>
  struct Header {
    decltype(F::Load(nullptr)) first, second;
    Floats scale, min;  // of both, where they are bytes' factors
    INLAY_INLINE explicit Header(At p)
        : first(F::Load(p.p)), second(F::Load(p.second())) {
      if constexpr (requires { first.minus_min; }) {
        scale = Join(first.scale, second.scale);
        min = Join(first.minus_min, second.minus_min);
      } else if constexpr (requires { F::kSubSigned; }) {
        scale = Join(first, second);
      }
    }
  };

  INLAY_INLINE static At Strips(const uint8_t* first, int64_t apart) {
    return {first, apart};
  }
  INLAY_INLINE static Floats Join(__m256 first, __m256 second) {
    return _mm512_castpd_ps(
        _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(first)),
                           _mm256_castps_pd(second), 1));
  }
  template <class F>
  INLAY_INLINE static void Factors(const Header<F>& header, At step, int half,
                                   Floats* scale, Floats* min) {
    if constexpr (requires { F::kSubSigned; }) {
      const auto sub = [&](int i) {
        return Mul(i < F::kHalves ? header.scale : header.min,
                   EightBytes<F::kSubSigned>(step + kStripRows * i));
      };
      *scale = sub(half);
      if constexpr (requires { header.first.minus_min; }) {
        *min = sub(F::kHalves + half);
      }
    } else {
      *scale = Join(F::Scale(header.first, step.p, half),
                    F::Scale(header.second, step.second(), half));
    }
    if constexpr (requires { requires F::kOffset != 0; }) {
      *min = Mul(*scale, _mm512_set1_ps(static_cast<float>(-F::kOffset)));
    } else if constexpr (F::kHasMin && !requires { F::kSubSigned; }) {
      // What is not a multiple of the scale does not ask for it.
      const __m256 none = _mm256_setzero_ps();
      *min = Join(F::Min(header.first, step.p, half, none),
                  F::Min(header.second, step.second(), half, none));
    }
  }
  // Of either strip, as numbers.
  template <bool is_signed>
  INLAY_INLINE static Floats EightBytes(At p) {
    const auto eight = [](const uint8_t* from) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    };
    const __m128i both = _mm_unpacklo_epi64(eight(p.p), eight(p.second()));
    return FromInts(is_signed ? _mm512_cvtepi8_epi32(both)
                              : _mm512_cvtepu8_epi32(both));
  }

  template <int64_t bytes>
  INLAY_INLINE static void Prefetch(At p) {
    PrefetchBytes<bytes>(p.p);
    PrefetchBytes<bytes>(p.second());
  }
  INLAY_INLINE static Bytes Load(At p) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(LoadBytes(p.p)),
                              LoadBytes(p.second()), 1);
  }
  INLAY_INLINE static Bytes Set(char byte) { return _mm512_set1_epi8(byte); }
  INLAY_INLINE static Bytes SetFour(const uint8_t* p) {
    return _mm512_set1_epi32(LoadFour(p));
  }
  template <int count>
  INLAY_INLINE static Bytes Right(Bytes v) {
    return _mm512_srli_epi16(v, count);
  }
  template <int count>
  INLAY_INLINE static Bytes Left(Bytes v) {
    return _mm512_slli_epi16(v, count);
  }
  INLAY_INLINE static Bytes And(Bytes a, Bytes b) {
    return _mm512_and_si512(a, b);
  }
  // The bits of `mask` of a, the others of b.
  template <int mask>
  INLAY_INLINE static Bytes Select(Bytes a, Bytes b) {
    constexpr int kSelect = 0xe4;
    return _mm512_ternarylogic_epi64(a, b, Set(static_cast<char>(mask)),
                                     kSelect);
  }
  template <int low_mask, int high_mask>
  INLAY_INLINE static Bytes Merge(Bytes low, Bytes high) {
    return And(Select<low_mask>(low, high),
               Set(static_cast<char>(low_mask | high_mask)));
  }
  INLAY_INLINE static Bytes LookUp(__m128i levels, Bytes codes) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), codes);
  }

  INLAY_INLINE static Bytes Unsigned(Bytes v) {
    return _mm512_xor_si512(v, Set(static_cast<char>(-128)));
  }
  INLAY_INLINE static Bytes Dot(Bytes sums, Bytes codes, Bytes x) {
    return _mm512_dpbusd_epi32(sums, codes, x);
  }
  INLAY_INLINE static Bytes Add(Bytes a, Bytes b) {
    return _mm512_add_epi32(a, b);
  }

  INLAY_INLINE static Bytes NoInts() { return _mm512_setzero_si512(); }
  INLAY_INLINE static Floats FromInts(Bytes v) { return _mm512_cvtepi32_ps(v); }
  INLAY_INLINE static Floats NoFloats() { return _mm512_setzero_ps(); }
  INLAY_INLINE static Floats Set(const float* p) { return _mm512_set1_ps(*p); }
  INLAY_INLINE static Floats Mul(Floats a, Floats b) {
    return _mm512_mul_ps(a, b);
  }
  INLAY_INLINE static Floats MulAdd(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  INLAY_INLINE static void Store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  INLAY_INLINE static Floats LoadSums(const float* p) {
    return _mm512_loadu_ps(p);
  }
  INLAY_INLINE static void Put(uint8_t* p, Bytes v) {
    _mm512_storeu_si512(p, v);
  }
  INLAY_INLINE static Bytes Get(const uint8_t* p) {
    return _mm512_loadu_si512(p);
  }
};
#endif  // INLAY_PACKED_VNNI

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_VECTORS_INL_H_
