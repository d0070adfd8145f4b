// The formats that gemm_cpu_packed.cc serves: how a block goes into its strip,
// and what its codes and scales are as vectors. Included there, inside the
// region compiled for AVX2. Layouts: layout.h; what blocks mean:
// kernels/quant/.
//
// A format has
//   kDType, kSteps     steps of a block
//   kHeader, kScales   bytes before a block's steps and before a step's codes
//   Codes              Planes of the codes
//   kMost              largest code, or 0: codes are signed bytes
//   kHalves            2: scales hold for 16 elements, 1: for 32
//   kHasMin
//   Pack(block, row, header, steps)   a block of one row, into zeros;
//                      steps: its first step, Stride() bytes apart
//   Load(header)       Header: what steps share
//   Scale(h, p, half)  of the eight rows, p: the step's scales
//   Min(h, p, half, scale)            added to scale * code
//   Tile<t>(p)         bytes: codes of a tile
#ifndef INLAY_KERNELS_GEMM_PACKED_FORMATS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_FORMATS_INL_H_

namespace inlay::packed {

#define INLAY_INLINE inline __attribute__((always_inline))

INLAY_INLINE __m256i LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
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

// The bits of tile t in a plane, moved to bit kFrom.
template <int kBits, int kFrom, int t>
INLAY_INLINE __m256i PlaneTile(const uint8_t* plane) {
  constexpr int kShift = Plane<kBits>::ShiftOf(t);
  constexpr int kMask = ((1 << kBits) - 1) << kFrom;
  __m256i v = LoadBytes(plane + Plane<kBits>::ByteOf(t));
  if constexpr (kShift > kFrom) v = _mm256_srli_epi16(v, kShift - kFrom);
  if constexpr (kShift < kFrom) v = _mm256_slli_epi16(v, kFrom - kShift);
  // One mask for all tiles; it also takes away what came from bytes beside.
  if constexpr (kBits < 8) {
    v = _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(kMask)));
  }
  return v;
}

template <class Codes, int t>
INLAY_INLINE __m256i CodesTile(const uint8_t* p) {
  __m256i v = PlaneTile<Codes::kLowBits, 0, t>(p);
  if constexpr (Codes::kHighBits > 0) {
    v = _mm256_or_si256(v, PlaneTile<Codes::kHighBits, Codes::kLowBits, t>(
                               p + Codes::kLowBytes));
  }
  return v;
}

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
  template <int t>
  INLAY_INLINE static __m256i Tile(const uint8_t* p) {
    return CodesTile<Codes, t>(p);
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
  template <int t>
  INLAY_INLINE static __m256i Tile(const uint8_t* p) {
    return CodesTile<Codes, t>(p);
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
  template <int t>
  INLAY_INLINE static __m256i Tile(const uint8_t* p) {
    return CodesTile<Codes, t>(p);
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

}  // namespace inlay::packed

#endif  // INLAY_KERNELS_GEMM_PACKED_FORMATS_INL_H_
