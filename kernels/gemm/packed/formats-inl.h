// The formats that the rows cpu_packed* serve: how a block goes into its strip,
// and what its codes and scales are as vectors. Included inside the region
// compiled for AVX2 or more. Layouts: layout.h; what blocks mean:
// kernels/quant/.
//
// A format has
//   kDType, kSteps     steps of a block
//   kHeader, kScales   bytes before a block's steps and before a step's codes
//   Codes              Planes of the codes
//   kMost              largest code, or 0: codes are signed bytes
//   kHalves            2: scales hold for 16 elements, 1: for 32
//   kHasMin
//   kSubSigned         whether the half's bytes that the header's scale (and
//                      minimum) is multiplied by are signed; missing: none are
//   kOffset            not 0: Min is -kOffset * scale; may be missing
//   kLevels            16 of them that Tile looks codes up in, where they are
//                      signed
//   Pack(block, row, header, steps)   a block of one row, into zeros;
//                      steps: its first step, Stride() bytes apart
//   Load(header)       Header: what steps share
//   Scale(h, p, half)  of the eight rows, p: the step's scales
//   Min(h, p, half, scale)            added to scale * code
//   Tile<V, t>(p)      bytes: codes of a tile, V of vectors-inl.h
#ifndef INLAY_KERNELS_GEMM_PACKED_FORMATS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_FORMATS_INL_H_

#include "kernels/gemm/packed/codes-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

struct NoHeader {};

// Blocks of 32 with an f16 scale; value = scale * (code - offset).
template <DType dtype, class CodesT, int most, int offset>
struct Scaled {
  static constexpr DType kDType = dtype;
  static constexpr int kSteps = 1;
  static constexpr int kHeader = 0;
  static constexpr int kScales = 16;
  using Codes = CodesT;
  static constexpr int kMost = most;
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = offset != 0;
  static constexpr int kOffset = offset;

  static void Put(uint16_t scale, const uint8_t* codes, int row,
                  uint8_t* step) {
    PutLane(step, row, scale);
    for (int i = 0; i < kStep; ++i) {
      Codes::Put(step + kScales, row, i, codes[i]);
    }
  }

  INLAY_INLINE static NoHeader Load(const uint8_t*) { return {}; }
  INLAY_INLINE static __m256 Scale(NoHeader, const uint8_t* p, int) {
    return LoadHalves(p);
  }
  INLAY_INLINE static __m256 Min(NoHeader, const uint8_t*, int, __m256 scale) {
    return _mm256_mul_ps(scale, _mm256_set1_ps(static_cast<float>(-offset)));
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return CodesTile<V, Codes, t>(p);
  }
};

// Blocks of 32 with f16 scale and minimum; value = scale * code + min.
template <DType dtype, class CodesT, int most>
struct Affine : Scaled<dtype, CodesT, most, 0> {
  static constexpr int kScales = 32;
  static constexpr bool kHasMin = true;

  static void Put(uint16_t scale, uint16_t min, const uint8_t* codes, int row,
                  uint8_t* step) {
    PutLane(step, row, scale);
    PutLane(step + 16, row, min);
    for (int i = 0; i < kStep; ++i) {
      CodesT::Put(step + kScales, row, i, codes[i]);
    }
  }

  INLAY_INLINE static __m256 Min(NoHeader, const uint8_t* p, int, __m256) {
    return LoadHalves(p + 16);
  }
};

struct Q4_0 : Scaled<DType::kQ4_0, Planes<4, 0>, 15, 8> {
  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<Q4_0Block>(src, 0);
    uint8_t codes[kStep];
    UnpackBits<4, 16, kStep>(block.codes, codes);
    Put(block.scale, codes, row, step);
  }
};

struct Q4_1 : Affine<DType::kQ4_1, Planes<4, 0>, 15> {
  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<Q4_1Block>(src, 0);
    uint8_t codes[kStep];
    UnpackBits<4, 16, kStep>(block.codes, codes);
    Put(block.scale, block.min, codes, row, step);
  }
};

struct Q5_0 : Scaled<DType::kQ5_0, Planes<4, 1>, 31, 16> {
  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<Q5_0Block>(src, 0);
    uint8_t codes[kStep];
    UnpackBits<4, 16, kStep>(block.low, codes);
    UnpackBits<1, 1, kStep, 4>(block.high, codes);
    Put(block.scale, codes, row, step);
  }
};

struct Q5_1 : Affine<DType::kQ5_1, Planes<4, 1>, 31> {
  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<Q5_1Block>(src, 0);
    uint8_t codes[kStep];
    UnpackBits<4, 16, kStep>(block.low, codes);
    UnpackBits<1, 1, kStep, 4>(block.high, codes);
    Put(block.scale, block.min, codes, row, step);
  }
};

struct Q8_0 : Scaled<DType::kQ8_0, Planes<8, 0>, 0, 0> {
  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<Q8_0Block>(src, 0);
    Put(block.scale, reinterpret_cast<const uint8_t*>(block.codes), row, step);
  }
};

// Blocks of 256 whose f16 scale and minimum are multiplied by small integers a
// sub-block: of 32 or (halves 2) 16 elements.
template <DType dtype, class CodesT, int most, int halves>
struct SuperAffine {
  static constexpr DType kDType = dtype;
  static constexpr int kSteps = 8;
  static constexpr int kHeader = 32;
  static constexpr int kScales = 16 * halves;
  using Codes = CodesT;
  static constexpr int kMost = most;
  static constexpr int kHalves = halves;
  static constexpr bool kHasMin = true;

  static constexpr bool kSubSigned = false;

  struct Header {
    __m256 scale, minus_min;
  };

  static void Put(uint16_t scale, uint16_t min, const uint8_t* scales,
                  const uint8_t* mins, const uint8_t* codes, int row,
                  uint8_t* header, uint8_t* steps) {
    PutLane(header, row, scale);
    PutLane(header + 16, row, min);
    for (int s = 0; s < kSteps; ++s) {
      uint8_t* step = steps + s * (kScales + Codes::kBytes);
      for (int h = 0; h < halves; ++h) {
        PutLane(step + 8 * h, row, scales[s * halves + h]);
        PutLane(step + 8 * (halves + h), row, mins[s * halves + h]);
      }
      for (int i = 0; i < kStep; ++i) {
        Codes::Put(step + kScales, row, i, codes[s * kStep + i]);
      }
    }
  }

  INLAY_INLINE static Header Load(const uint8_t* p) {
    return {LoadHalves(p),
            _mm256_sub_ps(_mm256_setzero_ps(), LoadHalves(p + 16))};
  }
  INLAY_INLINE static __m256 Scale(const Header& h, const uint8_t* p,
                                   int half) {
    return _mm256_mul_ps(h.scale, LoadU8(p + 8 * half));
  }
  INLAY_INLINE static __m256 Min(const Header& h, const uint8_t* p, int half,
                                 __m256) {
    return _mm256_mul_ps(h.minus_min, LoadU8(p + 8 * (halves + half)));
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return CodesTile<V, Codes, t>(p);
  }
};

// The same with signed integers and without a minimum; value = scale * s *
// (code - offset).
template <DType dtype, class CodesT, int most, int offset, int halves>
struct SuperScaled {
  static constexpr DType kDType = dtype;
  static constexpr int kSteps = 8;
  static constexpr int kHeader = 16;
  static constexpr int kScales = 8 * halves;
  using Codes = CodesT;
  static constexpr int kMost = most;
  static constexpr int kHalves = halves;
  static constexpr bool kHasMin = offset != 0;
  static constexpr int kOffset = offset;
  static constexpr bool kSubSigned = true;

  static void Put(uint16_t scale, const int8_t* scales, const uint8_t* codes,
                  int row, uint8_t* header, uint8_t* steps) {
    PutLane(header, row, scale);
    for (int s = 0; s < kSteps; ++s) {
      uint8_t* step = steps + s * (kScales + Codes::kBytes);
      for (int h = 0; h < halves; ++h) {
        PutLane(step + 8 * h, row, scales[s * halves + h]);
      }
      for (int i = 0; i < kStep; ++i) {
        Codes::Put(step + kScales, row, i, codes[s * kStep + i]);
      }
    }
  }

  INLAY_INLINE static __m256 Load(const uint8_t* p) { return LoadHalves(p); }
  INLAY_INLINE static __m256 Scale(__m256 scale, const uint8_t* p, int half) {
    return _mm256_mul_ps(scale, LoadI8(p + 8 * half));
  }
  INLAY_INLINE static __m256 Min(__m256, const uint8_t*, int, __m256 scale) {
    return _mm256_mul_ps(scale, _mm256_set1_ps(static_cast<float>(-offset)));
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return CodesTile<V, Codes, t>(p);
  }
};

struct Q2_K : SuperAffine<DType::kQ2_K, Planes<2, 0>, 3, 2> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<Q2_KBlock>(src, 0);
    uint8_t scales[16], mins[16], codes[256];
    for (int j = 0; j < 16; ++j) {
      scales[j] = block.sub[j] & 15;
      mins[j] = block.sub[j] >> 4;
    }
    UnpackBits<2, 32, 256>(block.codes, codes);
    Put(block.scale, block.min, scales, mins, codes, row, header, steps);
  }
};

struct Q3_K : SuperScaled<DType::kQ3_K, Planes<2, 1>, 7, 4, 2> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<Q3_KBlock>(src, 0);
    uint8_t sub[16], codes[256];
    UnpackBits<4, 8, 16>(block.sub_low, sub);
    UnpackBits<2, 4, 16, 4>(block.sub_high, sub);
    int8_t scales[16];
    for (int j = 0; j < 16; ++j) scales[j] = static_cast<int8_t>(sub[j] - 32);
    UnpackBits<2, 32, 256>(block.low, codes);
    UnpackBits<1, 32, 256, 2>(block.high, codes);
    Put(block.scale, scales, codes, row, header, steps);
  }
};

struct Q4_K : SuperAffine<DType::kQ4_K, Planes<4, 0>, 15, 1> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<Q4_KBlock>(src, 0);
    uint8_t scales[8], mins[8], codes[256];
    UnpackKScales(block.sub, scales, mins);
    UnpackBits<4, 32, 256>(block.codes, codes);
    Put(block.scale, block.min, scales, mins, codes, row, header, steps);
  }
};

struct Q5_K : SuperAffine<DType::kQ5_K, Planes<4, 1>, 31, 1> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<Q5_KBlock>(src, 0);
    uint8_t scales[8], mins[8], codes[256];
    UnpackKScales(block.sub, scales, mins);
    UnpackBits<4, 32, 256>(block.low, codes);
    UnpackBits<1, 32, 256, 4>(block.high, codes);
    Put(block.scale, block.min, scales, mins, codes, row, header, steps);
  }
};

struct Q6_K : SuperScaled<DType::kQ6_K, Planes<4, 2>, 63, 32, 2> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<Q6_KBlock>(src, 0);
    uint8_t codes[256];
    UnpackBits<4, 64, 256>(block.low, codes);
    UnpackBits<2, 32, 256, 4>(block.high, codes);
    Put(block.scale, block.sub, codes, row, header, steps);
  }
};

struct IQ4_NL : Scaled<DType::kIQ4_NL, Planes<4, 0>, 0, 0> {
  static constexpr const int8_t* kLevels = kIq4Levels;

  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<IQ4_NLBlock>(src, 0);
    uint8_t codes[kStep];
    UnpackBits<4, 16, kStep>(block.codes, codes);
    Put(block.scale, codes, row, step);
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return LevelsTile<V, Codes, t>(kLevels, p);
  }
};

struct IQ4_XS : SuperScaled<DType::kIQ4_XS, Planes<4, 0>, 0, 0, 1> {
  static constexpr const int8_t* kLevels = kIq4Levels;

  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<IQ4_XSBlock>(src, 0);
    uint8_t sub[8], codes[256];
    UnpackBits<4, 1, 8>(block.sub_low, sub);
    UnpackBits<2, 1, 8, 4>(block.sub_high, sub);
    int8_t scales[8];
    for (int j = 0; j < 8; ++j) scales[j] = static_cast<int8_t>(sub[j] - 32);
    UnpackBits<4, 16, 256>(block.codes, codes);
    Put(block.scale, scales, codes, row, header, steps);
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return LevelsTile<V, Codes, t>(kLevels, p);
  }
};

// Doubled e2m1 with 12 added, so that the levels are unsigned.
inline constexpr int kE2M1Offset = 12;
inline constexpr int8_t kE2M1Levels[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                           12, 11, 10, 9,  8,  6,  4,  0};

struct MXFP4 : Scaled<DType::kMXFP4, Planes<4, 0>, 24, kE2M1Offset> {
  static constexpr int kScales = 8;

  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* step) {
    const auto block = LoadBlock<MXFP4Block>(src, 0);
    uint8_t codes[kStep];
    UnpackBits<4, 16, kStep>(block.codes, codes);
    PutLane(step, row, block.scale);
    for (int i = 0; i < kStep; ++i) {
      Codes::Put(step + kScales, row, i, codes[i]);
    }
  }
  // HalfE8M0 of eight.
  INLAY_INLINE static __m256 Scale(NoHeader, const uint8_t* p, int) {
    const __m256i bits = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(bits, one), 23);
    const __m256i subnormal =
        _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), bits);
    const __m256i value =
        _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(bits, one));
    const __m256i nan =
        _mm256_and_si256(_mm256_cmpeq_epi32(bits, _mm256_set1_epi32(255)),
                         _mm256_set1_epi32(0x7fc00000));
    return _mm256_castsi256_ps(_mm256_or_si256(value, nan));
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return LevelsTile<V, Codes, t>(kE2M1Levels, p);
  }
};

// Its scales of 8 bits become f16, which holds their halves.
struct NVFP4 : Scaled<DType::kNVFP4, Planes<4, 0>, 24, kE2M1Offset> {
  static constexpr int kSteps = 2;
  static constexpr int kScales = 32;
  static constexpr int kHalves = 2;

  static void Pack(const std::byte* src, int row, uint8_t*, uint8_t* steps) {
    const auto block = LoadBlock<NVFP4Block>(src, 0);
    uint8_t codes[64];
    UnpackBits<4, 8, 64>(block.codes, codes);
    for (int s = 0; s < kSteps; ++s) {
      uint8_t* step = steps + s * (kScales + Codes::kBytes);
      for (int h = 0; h < kHalves; ++h) {
        PutLane(step + 16 * h, row,
                F32ToF16(HalfUE4M3(block.scales[s * kHalves + h])));
      }
      for (int i = 0; i < kStep; ++i) {
        Codes::Put(step + kScales, row, i, codes[s * kStep + i]);
      }
    }
  }
  INLAY_INLINE static __m256 Scale(NoHeader, const uint8_t* p, int half) {
    return LoadHalves(p + 16 * half);
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return LevelsTile<V, Codes, t>(kE2M1Levels, p);
  }
};

// The same with a factor, and the scales as they are: bits of 8 are those of an
// f16 that is 2^-8 of them, which the factor in the header makes up for.
struct NVFP4_F32 : NVFP4 {
  static constexpr DType kDType = DType::kNVFP4_F32;
  static constexpr int kHeader = 32;
  static constexpr int kScales = 16;

  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* steps) {
    const auto block = LoadBlock<NVFP4F32Block>(src, 0);
    uint8_t codes[64];
    UnpackBits<4, 8, 64>(block.of.codes, codes);
    PutLane(header, row, block.factor * 0x1p7f);  // scales are halved
    for (int s = 0; s < kSteps; ++s) {
      uint8_t* step = steps + s * (kScales + Codes::kBytes);
      for (int h = 0; h < kHalves; ++h) {
        const auto bits =
            static_cast<uint8_t>(block.of.scales[s * kHalves + h] & 0x7f);
        PutLane(step + kStripRows * h, row, bits == 0x7f ? uint8_t{0} : bits);
      }
      for (int i = 0; i < kStep; ++i) {
        Codes::Put(step + kScales, row, i, codes[s * kStep + i]);
      }
    }
  }
  INLAY_INLINE static __m256 Load(const uint8_t* p) { return LoadFloats(p); }
  INLAY_INLINE static __m256 Scale(__m256 factor, const uint8_t* p, int half) {
    const __m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(
        reinterpret_cast<const __m128i*>(p + kStripRows * half)));
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_slli_epi16(bits, 7)), factor);
  }
  INLAY_INLINE static __m256 Min(__m256, const uint8_t*, int, __m256 scale) {
    return NVFP4::Min({}, nullptr, 0, scale);
  }
};

// Groups of 32 * steps elements with float32 scale and minimum.
template <DType dtype, class CodesT, int most, int steps>
struct Grouped {
  static constexpr DType kDType = dtype;
  static constexpr int kSteps = steps;
  static constexpr int kHeader = 64;
  static constexpr int kScales = 0;
  using Codes = CodesT;
  static constexpr int kMost = most;
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = true;

  struct Header {
    __m256 scale, min;
  };

  static void Put(float scale, float min, const uint8_t* codes, int row,
                  uint8_t* header, uint8_t* first) {
    PutLane(header, row, scale);
    PutLane(header + 32, row, min);
    for (int s = 0; s < kSteps; ++s) {
      for (int i = 0; i < kStep; ++i) {
        Codes::Put(first + s * Codes::kBytes, row, i, codes[s * kStep + i]);
      }
    }
  }

  INLAY_INLINE static Header Load(const uint8_t* p) {
    return {LoadFloats(p), LoadFloats(p + 32)};
  }
  INLAY_INLINE static __m256 Scale(const Header& h, const uint8_t*, int) {
    return h.scale;
  }
  INLAY_INLINE static __m256 Min(const Header& h, const uint8_t*, int, __m256) {
    return h.min;
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return CodesTile<V, Codes, t>(p);
  }
};

template <DType dtype, int steps>
struct U4 : Grouped<dtype, Planes<4, 0>, 15, steps> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* first) {
    constexpr int kCount = steps * kStep;
    const auto block = LoadBlock<U4Group<kCount>>(src, 0);
    uint8_t codes[kCount];
    UnpackBits<4, 16, kCount>(block.codes, codes);
    U4::Put(block.scale, block.min, codes, row, header, first);
  }
};

template <DType dtype, int steps>
struct I8 : Grouped<dtype, Planes<8, 0>, 0, steps> {
  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* first) {
    const auto block = LoadBlock<I8Group<steps * kStep>>(src, 0);
    I8::Put(block.scale, block.min,
            reinterpret_cast<const uint8_t*>(block.codes), row, header, first);
  }
};

// Levels that are no integers, as multiples of 1 / kUnit of the largest: off by
// at most half of that. 112 and 120 err least of what 8 bits hold (.0039 and,
// of bnb_fp4's least level alone, .0031; nf4's levels are .08 and more apart).
inline constexpr int kNf4Unit = 112;
inline constexpr int kBnbFp4PackedUnit = 120;
inline constexpr std::array<int8_t, 16> kNf4Rounded =
    RoundLevels(kNf4Levels, kNf4Unit);
inline constexpr std::array<int8_t, 16> kBnbFp4Rounded =
    RoundLevels(kBnbFp4Levels, kBnbFp4PackedUnit);

template <DType dtype, const std::array<int8_t, 16>& kTable, int kUnit>
struct RoundedLevels {
  static constexpr DType kDType = dtype;
  static constexpr int kSteps = 2;
  static constexpr int kHeader = 32;
  static constexpr int kScales = 0;
  using Codes = Planes<4, 0>;
  static constexpr int kMost = 0;
  static constexpr int kHalves = 1;
  static constexpr bool kHasMin = false;
  static constexpr const int8_t* kLevels = kTable.data();

  static void Pack(const std::byte* src, int row, uint8_t* header,
                   uint8_t* first) {
    const auto block = LoadBlock<LevelBlock>(src, 0);
    uint8_t codes[kLevelBlockElements];
    UnpackBits<4, 16, kLevelBlockElements>(block.codes, codes);
    PutLane(header, row, block.scale / kUnit);
    for (int i = 0; i < kLevelBlockElements; ++i) {
      Codes::Put(first + i / kStep * Codes::kBytes, row, i % kStep, codes[i]);
    }
  }

  INLAY_INLINE static __m256 Load(const uint8_t* p) { return LoadFloats(p); }
  INLAY_INLINE static __m256 Scale(__m256 scale, const uint8_t*, int) {
    return scale;
  }
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(typename V::At p) {
    return LevelsTile<V, Codes, t>(kLevels, p);
  }
};
using NF4 = RoundedLevels<DType::kNF4, kNf4Rounded, kNf4Unit>;
using BNB_FP4 =
    RoundedLevels<DType::kBNB_FP4, kBnbFp4Rounded, kBnbFp4PackedUnit>;

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_FORMATS_INL_H_
