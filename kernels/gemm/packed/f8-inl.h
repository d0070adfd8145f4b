// f8_g32 and f8_g128: e4m3 has a range that 8-bit integers do not, so these are
// multiplied in float32, with activations as they are. For gemm_cpu_packed.cc
// and gemm_cpu_packed_vnni.cc, inside the region compiled for their instruction
// set.
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

#include "kernels/gemm/packed/panel-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Of x at a time, what stays in L2; sums on a thread's stack.
inline constexpr int64_t kF8XBytes = 512 << 10;
inline constexpr int64_t kF8Sums = 1 << 14;

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

// Widens codes: four elements of k of the rows of a vector.
struct YmmF8 {
  using V = Ymm;
  static constexpr int kRows = 3;  // of x with a panel

  // Of 16 codes, each in the upper byte of 16 bits: two elements of 8 rows.
  INLAY_INLINE static void WidenAny(__m256i codes, __m256* first,
                                    __m256* second) {
    // A step to the right makes room in the exponent, whose first bit is then
    // the sign's copy.
    const __m256i halves = _mm256_permute4x64_epi64(
        _mm256_and_si256(_mm256_srai_epi16(codes, 1),
                         _mm256_set1_epi16(static_cast<int16_t>(0xbfff))),
        0xd8);
    const __m256 unit = _mm256_set1_ps(256.0f);
    *first =
        _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), unit);
    *second = _mm256_mul_ps(
        _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), unit);
  }

  INLAY_INLINE static void Widen(__m256i codes, __m256* w) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = _mm256_unpacklo_epi8(zero, codes);
    const __m256i high = _mm256_unpackhi_epi8(zero, codes);
    const __m256i exponents = _mm256_and_si256(codes, _mm256_set1_epi8(0x78));
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(exponents, zero)) != 0)
        [[unlikely]] {
      WidenAny(low, &w[0], &w[1]);
      WidenAny(high, &w[2], &w[3]);
      return;
    }
    // The sign's copies go, 120 comes to the exponent.
    const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0x87f0));
    const __m256i bias = _mm256_set1_epi16(120 << 7);
    const __m256i l = _mm256_add_epi16(
        _mm256_and_si256(_mm256_srai_epi16(low, 4), mask), bias);
    const __m256i h = _mm256_add_epi16(
        _mm256_and_si256(_mm256_srai_epi16(high, 4), mask), bias);
    w[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, l));
    w[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, l));
    w[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, h));
    w[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, h));
  }

  INLAY_INLINE static __m256 Add(__m256 a, __m256 b) {
    return _mm256_add_ps(a, b);
  }
  // Of the strips at `at`, one a row.
  INLAY_INLINE static __m256 Scales(Ymm::At at) { return LoadFloats(at); }
};

#ifdef INLAY_PACKED_VNNI
// The same of two strips, all through f16, which has no branch and takes less
// than memory: values are 2^-8 of what they are, and scales 2^8. The bits are
// those of YmmF8 but where that leaves float32's normal numbers.
struct ZmmF8 {
  using V = Zmm;
  static constexpr int kRows = 6;

  INLAY_INLINE static void WidenTwo(__m512i codes, __m512* w) {
    const __m512i halves = _mm512_permutexvar_epi64(
        _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
        _mm512_and_si512(_mm512_srai_epi16(codes, 1),
                         _mm512_set1_epi16(static_cast<int16_t>(0xbfff))));
    w[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    w[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
  }
  INLAY_INLINE static void Widen(__m512i codes, __m512* w) {
    const __m512i zero = _mm512_setzero_si512();
    WidenTwo(_mm512_unpacklo_epi8(zero, codes), w);
    WidenTwo(_mm512_unpackhi_epi8(zero, codes), w + 2);
  }

  INLAY_INLINE static __m512 Add(__m512 a, __m512 b) {
    return _mm512_add_ps(a, b);
  }
  INLAY_INLINE static __m512 Scales(Zmm::At at) {
    return _mm512_mul_ps(Zmm::Join(LoadFloats(at.p), LoadFloats(at.second())),
                         _mm512_set1_ps(256.0f));
  }
};
#endif

// sums[r] = fma(scale, what R rows of x and a group of kCount elements give,
// sums[r]); widened(i): four elements of w's rows from element i on.
template <class W, class F, int R, class WidenedFn>
INLAY_INLINE void AddF8Group(const float* x, int64_t x_stride,
                             typename W::V::Floats scale, WidenedFn widened,
                             typename W::V::Floats* sums) {
  using V = typename W::V;
  typename V::Floats parts[R][4];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) parts[r][j] = V::NoFloats();
  }
  for (int i = 0; i < F::kCount; i += 4) {
    typename V::Floats wide[4];
    widened(i, wide);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        parts[r][j] =
            V::MulAdd(V::Set(x + r * x_stride + i + j), wide[j], parts[r][j]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    sums[r] = V::MulAdd(scale,
                        W::Add(W::Add(parts[r][0], parts[r][1]),
                               W::Add(parts[r][2], parts[r][3])),
                        sums[r]);
  }
}

// y: R rows of V's rows of w; x: the first row, x_stride apart.
template <class W, class F, int R>
__attribute__((noinline)) void F8Tile(typename W::V::At w, const float* x,
                                      int64_t x_stride, int64_t k, float* y) {
  using V = typename W::V;
  typename V::Floats sums[R];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) sums[r] = V::NoFloats();
  for (int64_t group = 0; group < k / F::kCount; ++group) {
    const typename V::Floats scale = W::Scales(w);
    w = w + F::kHeader;
    AddF8Group<W, F, R>(
        x + group * F::kCount, x_stride, scale,
        [&](int i, typename V::Floats* wide) {
          // Every other time: a line of 64 bytes is two tiles.
          if (i % 8 == 0) V::template Prefetch<1>(w + i * kStripRows + kAhead);
          W::Widen(V::Load(w + i * kStripRows), wide);
        },
        sums);
    w = w + F::kCount * kStripRows;
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    V::Store(y + r * kStripRows * V::kStrips, sums[r]);
  }
}

// As many elements of w's rows as L1 holds, in float32.
template <class W, class F>
struct F8Panel {
  static constexpr int kElements = 256;
  static constexpr int kRows = kVectorRows<typename W::V>;
  alignas(64) float w[kElements][kRows];
  alignas(64) float scale[kElements / F::kCount][kRows];
};

template <class W, class F>
void UnpackF8(typename W::V::At at, int64_t groups, F8Panel<W, F>& panel) {
  using V = typename W::V;
  for (int64_t group = 0; group < groups; ++group) {
    V::Store(panel.scale[group], W::Scales(at));
    at = at + F::kHeader;
    for (int i = 0; i < F::kCount; i += 4) {
      if (i % 8 == 0) V::template Prefetch<1>(at + i * kStripRows + kAhead);
      typename V::Floats wide[4];
      W::Widen(V::Load(at + i * kStripRows), wide);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        V::Store(panel.w[group * F::kCount + i + j], wide[j]);
      }
    }
    at = at + F::kCount * kStripRows;
  }
}

// sums[r]: of panel's rows of w, F8Panel::kRows apart.
template <class W, class F, int R>
__attribute__((noinline)) void AddF8Panel(const F8Panel<W, F>& panel,
                                          const float* x, int64_t x_stride,
                                          int64_t groups, float* sums) {
  using V = typename W::V;
  typename V::Floats y[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    y[r] = V::LoadSums(sums + r * F8Panel<W, F>::kRows);
  }
  for (int64_t group = 0; group < groups; ++group) {
    AddF8Group<W, F, R>(
        x + group * F::kCount, x_stride, V::LoadSums(panel.scale[group]),
        [&](int i, typename V::Floats* wide) {
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) {
            wide[j] = V::LoadSums(panel.w[group * F::kCount + i + j]);
          }
        },
        y);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    V::Store(sums + r * F8Panel<W, F>::kRows, y[r]);
  }
}

template <class W, class F, int R>
void AddF8Rows(const F8Panel<W, F>& panel, const float* x, int64_t x_stride,
               int64_t rows, int64_t groups, float* sums) {
  if (rows >= R) return AddF8Panel<W, F, R>(panel, x, x_stride, groups, sums);
  if constexpr (R > 1) {
    AddF8Rows<W, F, R - 1>(panel, x, x_stride, rows, groups, sums);
  }
}

// Vectors' rows of w [begin, end) with rows [m0, m1) of x.
template <class W, class F>
void RunF8Rows(const GemmDesc& desc, const GemmParams& params, int64_t begin,
               int64_t end, int64_t m0, int64_t m1) {
  using V = typename W::V;
  constexpr int kRows = F8Panel<W, F>::kRows;
  F8Panel<W, F> panel;
  alignas(64) float sums[kF8Sums];
  const auto x_stride =
      static_cast<int64_t>(params.x.row_stride_bytes / sizeof(float));
  const PanelStrips<F, V::kStrips> strips(desc, params);
  for (int64_t i = begin; i < end; ++i) {
    std::fill(sums, sums + (m1 - m0) * kRows, 0.0f);
    for (int64_t k0 = 0; k0 < desc.k; k0 += panel.kElements) {
      const int64_t groups =
          std::min<int64_t>(panel.kElements, desc.k - k0) / F::kCount;
      const uint8_t* first = strips.At(i, 0, k0 / kStep);
      const uint8_t* last = strips.At(i, V::kStrips - 1, k0 / kStep);
      UnpackF8<W, F>(V::Strips(first, last - first), groups, panel);
      for (int64_t m = m0; m < m1; m += W::kRows) {
        AddF8Rows<W, F, W::kRows>(panel, params.x.row<float>(m) + k0, x_stride,
                                  m1 - m, groups, sums + (m - m0) * kRows);
      }
    }
    FinishTile(desc, params, m0, static_cast<int>(m1 - m0), i * kRows, kRows,
               kRows, sums);
  }
}

// One or two rows of x as F8Tile has them; strips [begin, end).
template <class W, class F>
void RunF8Few(const GemmDesc& desc, const GemmParams& params, int64_t begin,
              int64_t end) {
  using V = typename W::V;
  constexpr int64_t kRows = kVectorRows<V>;
  using F8TileFn =
      void (*)(typename V::At, const float*, int64_t, int64_t, float*);
  constexpr F8TileFn kTile[kTileRows] = {F8Tile<W, F, 1>, F8Tile<W, F, 2>};
  alignas(64) float sums[kTileRows * kRows];
  const auto rows = static_cast<int>(params.x.rows());
  const auto x_stride =
      static_cast<int64_t>(params.x.row_stride_bytes / sizeof(float));
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  const int64_t bytes = StripBytes<F>(desc.k);
  const int64_t apart = (end - begin + V::kStrips - 1) / V::kStrips;
  for (int64_t strip = begin; strip < begin + apart; ++strip) {
    // One that is left over stands for two, so that it has the bits that it has
    // in panels.
    const int64_t strips =
        strip + (V::kStrips - 1) * apart < end ? V::kStrips : 1;
    kTile[rows - 1](V::Strips(w + strip * bytes, (strips - 1) * apart * bytes),
                    params.x.row<float>(0), x_stride, desc.k, sums);
    for (int64_t i = 0; i < strips; ++i) {
      FinishTile(desc, params, 0, rows, (strip + i * apart) * kStripRows,
                 kStripRows, kRows, sums + i * kStripRows);
    }
  }
}

template <class W, class F>
void RunF8(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  using V = typename W::V;
  constexpr int64_t kRows = kVectorRows<V>;
  const int64_t rows = params.x.rows();
  if (rows == 0) return;
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const int64_t vectors = (desc.n + kRows - 1) / kRows;
  const int64_t grain = kGrainBytes / (V::kStrips * StripBytes<F>(desc.k)) + 1;
  if (rows <= kTileRows) {
    return pool.ParallelFor(vectors, grain, [&](int64_t begin, int64_t end) {
      RunF8Few<W, F>(desc, params, begin * V::kStrips,
                     std::min(end * V::kStrips, strips));
    });
  }
  const auto row_bytes = static_cast<int64_t>(sizeof(float)) * desc.k;
  const int64_t block =
      std::clamp<int64_t>(kF8XBytes / row_bytes / W::kRows * W::kRows, W::kRows,
                          kF8Sums / kRows / W::kRows * W::kRows);
  for (int64_t m0 = 0; m0 < rows; m0 += block) {
    pool.ParallelFor(vectors, grain, [&](int64_t begin, int64_t end) {
      RunF8Rows<W, F>(desc, params, begin, end, m0, std::min(rows, m0 + block));
    });
  }
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_F8_INL_H_
