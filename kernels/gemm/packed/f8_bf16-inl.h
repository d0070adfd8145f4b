// f8_g32 and f8_g128 by products of pairs of bf16, which holds every e4m3 as it
// is: x is rounded to bf16 once, to the nearest. Weights lie as f8-inl.h has
// them. For gemm_cpu_packed_bf16.cc, inside the region compiled for its
// instruction set.
//
// y = fma(scale, sum of the group, y), groups in ascending order; a group's sum
// is one chain of products of pairs in ascending order, as the instruction
// rounds them (it takes denormal numbers as zeros).
#ifndef INLAY_KERNELS_GEMM_PACKED_F8_BF16_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_F8_BF16_INL_H_

#include "kernels/gemm/packed/f8-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Rows of w at once: two vectors of two strips.
inline constexpr int kPairStrips = 4;
inline constexpr int64_t kPairRows = kPairStrips * kStripRows;
// Of x: those that pass over weights as they stream from memory, at once, and
// one group after another over strips that are in L2 by then; and those of a
// tile with a panel.
inline constexpr int kFewPairRows = 4;
inline constexpr int kMostFewPairRows = 16;
inline constexpr int kTilePairRows = 12;
// Of x at a time, what stays in the caches: a panel is unpacked for each.
inline constexpr int64_t kPairXBytes = 2048 << 10;
inline constexpr int64_t kPairSums = 1 << 14;

// The bytes of a code's bf16, its sign aside, and the order in which 16 bytes
// of four elements of four rows are pairs.
struct PairTable {
  alignas(64) uint8_t low[128] = {};
  alignas(64) uint8_t high[128] = {};
  alignas(64) uint8_t order[64] = {};
};
constexpr PairTable MakePairTable() {
  PairTable table;
  for (int code = 1; code < 128; ++code) {
    int exponent = (code >> 3) + 120;
    int fraction = code % 8 << 4;
    if (code < 8) {  // subnormal: code * 2^-9
      const int log = code < 2 ? 0 : code < 4 ? 1 : 2;
      exponent = log - 9 + 127;
      fraction = (code << (7 - log)) & 0x7f;
    }
    const int bits = exponent << 7 | fraction;
    table.low[code] = static_cast<uint8_t>(bits & 0xff);
    table.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  for (int i = 0; i < 64; ++i) {
    const int row = i % 8 / 2;
    const int element = i % 16 / 8 * 2 + i % 2;
    table.order[i] = static_cast<uint8_t>(element * 4 + row);
  }
  return table;
}
inline constexpr PairTable kPairTable = MakePairTable();

class PairWidener {
 public:
  INLAY_INLINE PairWidener() {
    for (int i = 0; i < 2; ++i) {
      low_[i] = _mm512_load_si512(kPairTable.low + 64 * i);
      high_[i] = _mm512_load_si512(kPairTable.high + 64 * i);
    }
    order_ = _mm512_load_si512(kPairTable.order);
    sign_ = _mm512_set1_epi8(static_cast<char>(0x80));
  }
  // Four elements of k of two strips: their pairs of 16 rows, one after the
  // other.
  INLAY_INLINE void Widen(const uint8_t* first, const uint8_t* second,
                          __m512i* w0, __m512i* w1) const {
    const __m512i codes = _mm512_shuffle_epi8(
        _mm512_inserti64x4(_mm512_castsi256_si512(LoadBytes(first)),
                           LoadBytes(second), 1),
        order_);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], codes, low_[1]);
    // high | (codes & sign)
    const __m512i high = _mm512_ternarylogic_epi32(
        _mm512_permutex2var_epi8(high_[0], codes, high_[1]), codes, sign_,
        0xf8);
    *w0 = _mm512_unpacklo_epi8(low, high);
    *w1 = _mm512_unpackhi_epi8(low, high);
  }

 private:
  __m512i low_[2], high_[2], order_, sign_;
};

INLAY_INLINE __m512 AddPairs(__m512 sums, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(w),
                          reinterpret_cast<__m512bh>(x));
}
INLAY_INLINE __m512i PairOf(const uint32_t* x) {
  return _mm512_set1_epi32(static_cast<int>(*x));
}
INLAY_INLINE __m512 TwoScales(const uint8_t* first, const uint8_t* second) {
  return Zmm::Join(LoadFloats(first), LoadFloats(second));
}

// Of two strips what comes kAhead bytes later, while element i of a group is
// read: every other time, as a line of 64 bytes is two tiles.
INLAY_INLINE void AskAhead(const uint8_t* first, const uint8_t* second,
                           int64_t byte, int i) {
  if (i % 8 != 0) return;
  _mm_prefetch(reinterpret_cast<const char*>(first + byte + kAhead),
               _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(second + byte + kAhead),
               _MM_HINT_T0);
}

// Row m of x in bf16, k / 2 pairs.
inline uint32_t* PairsOfRow(const GemmDesc& desc, const GemmParams& params,
                            int64_t m) {
  return static_cast<uint32_t*>(params.workspace) + m * (desc.k / 2);
}

inline void RoundToPairs(const GemmDesc& desc, const GemmParams& params,
                         int64_t m) {
  const float* x = params.x.row<float>(m);
  uint32_t* to = PairsOfRow(desc, params, m);
  for (int64_t k = 0; k < desc.k; k += 32) {
    _mm512_storeu_si512(
        to + k / 2, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                        _mm512_loadu_ps(x + k + 16), _mm512_loadu_ps(x + k))));
  }
}

// y: R rows of kPairRows sums; strips: where those begin.
template <class F, int R>
__attribute__((noinline)) void FewPairs(const uint8_t* const* strips,
                                        const uint32_t* x, int64_t x_stride,
                                        int64_t k, float* y) {
  const PairWidener widener;
  const uint8_t* at[kPairStrips];
  std::copy_n(strips, kPairStrips, at);
  __m512 sums[R][2];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  for (int64_t group = 0; group < k / F::kCount; ++group) {
    const __m512 scales[2] = {TwoScales(at[0], at[1]), TwoScales(at[2], at[3])};
    __m512 products[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      products[r][0] = products[r][1] = _mm512_setzero_ps();
    }
    for (int i = 0; i < F::kCount; i += 4, x += 2) {
      const int64_t byte = F::kHeader + i * kStripRows;
      __m512i w[2][2];
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        AskAhead(at[2 * v], at[2 * v + 1], byte, i);
        widener.Widen(at[2 * v] + byte, at[2 * v + 1] + byte, &w[v][0],
                      &w[v][1]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int pair = 0; pair < 2; ++pair) {
          const __m512i u = PairOf(x + r * x_stride + pair);
          products[r][0] = AddPairs(products[r][0], w[0][pair], u);
          products[r][1] = AddPairs(products[r][1], w[1][pair], u);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        sums[r][v] = _mm512_fmadd_ps(scales[v], products[r][v], sums[r][v]);
      }
    }
    for (const uint8_t*& strip : at) {
      strip += F::kHeader + F::kCount * kStripRows;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(y + r * kPairRows, sums[r][0]);
    _mm512_storeu_ps(y + r * kPairRows + 16, sums[r][1]);
  }
}

// Strips [begin, end) with the few rows. A tile's come from four parts of the
// range, long streams each.
template <class F>
void RunFewPairs(const GemmDesc& desc, const GemmParams& params, int64_t begin,
                 int64_t end) {
  using Fn = void (*)(const uint8_t* const*, const uint32_t*, int64_t, int64_t,
                      float*);
  constexpr Fn kTile[kFewPairRows] = {FewPairs<F, 1>, FewPairs<F, 2>,
                                      FewPairs<F, 3>, FewPairs<F, 4>};
  alignas(64) float sums[kFewPairRows * kPairRows];
  const int64_t rows = params.x.rows();
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  const int64_t apart = (end - begin + kPairStrips - 1) / kPairStrips;
  for (int64_t first = begin; first < begin + apart; ++first) {
    // One that is missing is the first once more, and dropped.
    const uint8_t* strips[kPairStrips];
    for (int64_t i = 0; i < kPairStrips; ++i) {
      const int64_t strip = first + i * apart;
      strips[i] = w + (strip < end ? strip : first) * StripBytes<F>(desc.k);
    }
    for (int64_t m = 0; m < rows; m += kFewPairRows) {
      const int count =
          static_cast<int>(std::min<int64_t>(rows - m, kFewPairRows));
      kTile[count - 1](strips, PairsOfRow(desc, params, m), desc.k / 2, desc.k,
                       sums);
      for (int64_t i = 0; i < kPairStrips && first + i * apart < end; ++i) {
        FinishTile(desc, params, m, count, (first + i * apart) * kStripRows,
                   kStripRows, kPairRows, sums + i * kStripRows);
      }
    }
  }
}

// Pairs of some elements of kPairRows rows of w, as many as L1 holds.
template <class F>
struct PairPanel {
  static constexpr int kElements = 256;
  alignas(64) uint32_t w[kElements / 2][kPairRows];
  alignas(64) float scale[kElements / F::kCount][kPairRows];
};

template <class F>
void UnpackPairs(const PanelStrips<F, kPairStrips>& strips, int64_t panel_index,
                 int64_t k0, int64_t groups, PairPanel<F>& panel) {
  const PairWidener widener;
  for (int v = 0; v < 2; ++v) {
    const uint8_t* first = strips.At(panel_index, 2 * v, k0 / kStep);
    const uint8_t* second = strips.At(panel_index, 2 * v + 1, k0 / kStep);
    for (int64_t group = 0; group < groups; ++group) {
      _mm512_store_ps(panel.scale[group] + 16 * v, TwoScales(first, second));
      for (int i = 0; i < F::kCount; i += 4) {
        const int64_t byte = F::kHeader + i * kStripRows;
        uint32_t* to = panel.w[(group * F::kCount + i) / 2] + 16 * v;
        AskAhead(first, second, byte, i);
        __m512i w0, w1;
        widener.Widen(first + byte, second + byte, &w0, &w1);
        _mm512_store_si512(to, w0);
        _mm512_store_si512(to + kPairRows, w1);
      }
      first += F::kHeader + F::kCount * kStripRows;
      second += F::kHeader + F::kCount * kStripRows;
    }
  }
}

// sums: R rows, kPairRows apart, which the panel's products are added to.
template <class F, int R>
__attribute__((noinline)) void AddPairPanel(const PairPanel<F>& panel,
                                            const uint32_t* x, int64_t x_stride,
                                            int64_t groups, float* sums) {
  for (int64_t group = 0; group < groups; ++group) {
    __m512 c0[R], c1[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) c0[r] = c1[r] = _mm512_setzero_ps();
    const uint32_t* w = panel.w[group * F::kCount / 2];
    for (int i = 0; i < F::kCount / 2; ++i, w += kPairRows, ++x) {
      const __m512i w0 = _mm512_load_si512(w);
      const __m512i w1 = _mm512_load_si512(w + 16);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const __m512i u = PairOf(x + r * x_stride);
        c0[r] = AddPairs(c0[r], w0, u);
        c1[r] = AddPairs(c1[r], w1, u);
      }
    }
    const __m512 s0 = _mm512_load_ps(panel.scale[group]);
    const __m512 s1 = _mm512_load_ps(panel.scale[group] + 16);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      float* y = sums + r * kPairRows;
      _mm512_store_ps(y, _mm512_fmadd_ps(s0, c0[r], _mm512_load_ps(y)));
      _mm512_store_ps(y + 16,
                      _mm512_fmadd_ps(s1, c1[r], _mm512_load_ps(y + 16)));
    }
  }
}

template <class F, int R>
void AddPairTile(const PairPanel<F>& panel, const uint32_t* x, int64_t x_stride,
                 int64_t rows, int64_t groups, float* sums) {
  if (rows >= R) return AddPairPanel<F, R>(panel, x, x_stride, groups, sums);
  if constexpr (R > 1) {
    AddPairTile<F, R - 1>(panel, x, x_stride, rows, groups, sums);
  }
}

// Panels [begin, end) with rows [m0, m1) of x.
template <class F>
void RunPairPanels(const GemmDesc& desc, const GemmParams& params,
                   int64_t begin, int64_t end, int64_t m0, int64_t m1) {
  PairPanel<F> panel;
  alignas(64) float sums[kPairSums];
  const PanelStrips<F, kPairStrips> strips(desc, params);
  for (int64_t i = begin; i < end; ++i) {
    std::fill(sums, sums + (m1 - m0) * kPairRows, 0.0f);
    for (int64_t k0 = 0; k0 < desc.k; k0 += panel.kElements) {
      const int64_t groups =
          std::min<int64_t>(panel.kElements, desc.k - k0) / F::kCount;
      UnpackPairs<F>(strips, i, k0, groups, panel);
      for (int64_t m = m0; m < m1; m += kTilePairRows) {
        AddPairTile<F, kTilePairRows>(
            panel, PairsOfRow(desc, params, m) + k0 / 2, desc.k / 2, m1 - m,
            groups, sums + (m - m0) * kPairRows);
      }
    }
    FinishTile(desc, params, m0, static_cast<int>(m1 - m0), i * kPairRows,
               kPairRows, kPairRows, sums);
  }
}

template <class F>
void RunF8Pairs(const GemmDesc& desc, const GemmParams& params,
                ThreadPool& pool) {
  const int64_t rows = params.x.rows();
  if (rows == 0) return;
  pool.ParallelFor(rows, kGrainBytes / (2 * desc.k) + 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t m = begin; m < end; ++m) {
                       RoundToPairs(desc, params, m);
                     }
                   });
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const int64_t panels = (desc.n + kPairRows - 1) / kPairRows;
  const int64_t grain = kGrainBytes / (kPairStrips * StripBytes<F>(desc.k)) + 1;
  if (rows <= kMostFewPairRows) {
    return pool.ParallelFor(panels, grain, [&](int64_t begin, int64_t end) {
      RunFewPairs<F>(desc, params, begin * kPairStrips,
                     std::min(end * kPairStrips, strips));
    });
  }
  constexpr int64_t kMostRows =
      kPairSums / kPairRows / kTilePairRows * kTilePairRows;
  const int64_t block = std::clamp<int64_t>(
      kPairXBytes / (2 * desc.k) / kTilePairRows * kTilePairRows, kTilePairRows,
      kMostRows);
  for (int64_t m0 = 0; m0 < rows; m0 += block) {
    pool.ParallelFor(panels, grain, [&](int64_t begin, int64_t end) {
      RunPairPanels<F>(desc, params, begin, end, m0,
                       std::min(rows, m0 + block));
    });
  }
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_F8_BF16_INL_H_
