// Per target: products of many rows of x, for gemm_cpu_simd.cc; included there
// inside its foreach_target loop. The order of every sum is gemm_cpu_simd.cc's.
//
// A panel is kPanel rows of w by a block of k, widened and transposed: vectors
// hold one element of k of kLanes rows, so that an element of x, broadcast by
// the load, serves all of them (the structure of Goto and van de Geijn,
// doi:10.1145/1356052.1356053). What the order of sums calls lane j, the
// elements j, j + kLanes, .. of the block, is a part of the panel of its own
// and a pass of its own over it, and lanes are added vector by vector.
//
// Rows of x are put into that order too, into the workspace, tile by tile, so
// that all there is to read comes in a stream (rows a power of two apart would
// share sets of the caches).
//
// Per element of k a tile of 6 x 2 vectors (12 x 2 where there are 32
// registers) takes 2 loads and 6 broadcasts for 12 multiply-adds. Transposing a
// panel costs as much as 5 rows of x.
#if defined(INLAY_KERNELS_GEMM_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef INLAY_KERNELS_GEMM_PANELS_INL_H_
#undef INLAY_KERNELS_GEMM_PANELS_INL_H_
#else
#define INLAY_KERNELS_GEMM_PANELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/gemm/avx512.h"
#include "kernels/gemm/finish.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/panel_blocks.h"
#include "kernels/quant/quant.h"
#include "kernels/simd_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace gemm {

// Elements of k whose lanes are summed apart from the next ones'. A multiple
// of every block of the formats. Tiles begin and end once a lane: 16 lanes take
// blocks that are longer, and have an L2 for them.
constexpr int64_t kBlockK = kLanes < 8 ? 256 : kLanes < 16 ? 1024 : 2048;
constexpr int64_t kLaneCount = static_cast<int64_t>(kLanes);
constexpr int64_t kSteps = kBlockK / kLaneCount;
constexpr int64_t kPanel = 2 * kLaneCount;  // rows of w
#if HWY_ARCH_ARM_A64 || HWY_TARGET <= HWY_AVX3
constexpr int64_t kTileRows = 12;
#else
constexpr int64_t kTileRows = 6;
#endif
// A part and its neighbour's begin must not fall on the same set of L1.
constexpr int64_t kPart = (kSteps + 1) * kPanel;
constexpr int64_t kTileSums = kTileRows * kPanel;
// AVX2: x does not stay in caches (a row of 8,192 elements has 32 KB), and
// memory gives it too slowly for one panel. So a tile, in L1, is multiplied
// with two panels, in L2, and asked for ahead: prefetchers stop at each page.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t kPanels = 2;
constexpr int64_t kXAheadBytes = 3072;
#else
constexpr int64_t kPanels = 1;
constexpr int64_t kXAheadBytes = 0;  // not measured there
#endif

#if HWY_TARGET == HWY_SCALAR
template <typename W>
HWY_INLINE void Transpose4(const W* const* w, size_t k, size_t rest,
                           float* to) {
  for (size_t i = 0; i < 2; ++i) {
    to[i] = rest == 0 ? 0.0f : hn::GetLane(LoadWide(w[i] + k));
  }
}
constexpr int64_t kTransposed = 2;
#else
// The 128-bit blocks of v, blocks four parts apart.
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    hn::Store(v, d, to);
  } else {
    const hn::Half<D> half;
    StoreBlocks(half, hn::LowerHalf(half, v), to);
    StoreBlocks(half, hn::UpperHalf(half, v), to + kPart * hn::MaxLanes(d) / 2);
  }
}

// Elements k to k + kLanes of four rows of w: element j goes to part j. Only
// the first `rest` are read, the others are zeros.
template <typename W>
HWY_INLINE void Transpose4(const W* const* w, size_t k, size_t rest,
                           float* to) {
  const DF df;
  const hn::Repartition<double, DF> dd;
  VF v[4];
  for (size_t i = 0; i < 4; ++i) {
    v[i] = rest == kLanes ? LoadWide(w[i] + k) : LoadWideTail(w[i] + k, rest);
  }
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(df, v[0], v[1]));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(df, v[0], v[1]));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(df, v[2], v[3]));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(df, v[2], v[3]));
  const auto put = [&](int64_t j, auto pairs) HWY_ATTR {
    StoreBlocks(df, hn::BitCast(df, pairs), to + j * kPart);
  };
  put(0, hn::InterleaveLower(dd, low01, low23));
  put(1, hn::InterleaveUpper(dd, low01, low23));
  put(2, hn::InterleaveLower(dd, high01, high23));
  put(3, hn::InterleaveUpper(dd, high01, high23));
}
constexpr int64_t kTransposed = 4;
#endif

// Elements [0, k) of the rows at `w` to columns [column, column + kTransposed)
// of the panel.
template <typename W>
HWY_INLINE void PackColumns(const W* const* w, size_t k, int64_t column,
                            float* panel) {
  float* to = panel + column;
  size_t i = 0;
  for (; i + kLanes <= k; i += kLanes, to += kPanel) {
    Transpose4(w, i, kLanes, to);
  }
  if (i < k) Transpose4(w, i, k - i, to);
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
// The same of 16 rows, whole vectors of them for each part: a quarter of the
// stores.
constexpr int64_t kPlainTransposed = 16;
template <typename W>
HWY_INLINE void Transpose16Rows(const W* const* w, size_t k, size_t rest,
                                float* to) {
  static_assert(kLanes == 16);
  __m512i v[16];
  HWY_UNROLL(16)
  for (size_t i = 0; i < 16; ++i) {
    v[i] = _mm512_castps_si512(
        (rest == kLanes ? LoadWide(w[i] + k) : LoadWideTail(w[i] + k, rest))
            .raw);
  }
  Transpose16(v);
  HWY_UNROLL(16)
  for (int64_t j = 0; j < 16; ++j) _mm512_store_si512(to + j * kPart, v[j]);
}
template <typename W>
HWY_INLINE void PackPlainColumns(const W* const* w, size_t k, int64_t column,
                                 float* panel) {
  float* to = panel + column;
  size_t i = 0;
  for (; i + kLanes <= k; i += kLanes, to += kPanel) {
    Transpose16Rows(w, i, kLanes, to);
  }
  if (i < k) Transpose16Rows(w, i, k - i, to);
}
#else
constexpr int64_t kPlainTransposed = kTransposed;
template <typename W>
HWY_INLINE void PackPlainColumns(const W* const* w, size_t k, int64_t column,
                                 float* panel) {
  PackColumns(w, k, column, panel);
}
#endif

HWY_NOINLINE void FinishRow(const GemmParams& params, int64_t m, int64_t n0,
                            int64_t columns, const float* sums) {
  if (columns < kPanel) return FinishGemmRow(params, m, n0, columns, sums);
  const DF df;
  for (int64_t i = 0; i < kPanel; i += kLaneCount) {
    VF v = hn::Load(df, sums + i);
    if (params.bias != nullptr)
      v = hn::Add(v, hn::LoadU(df, params.bias + n0 + i));
    if (!params.residual.empty()) {
      v = hn::Add(v, hn::LoadU(df, params.residual.row<float>(m) + n0 + i));
    }
    hn::StoreU(v, df, params.y.row<float>(m) + n0 + i);
  }
}

// Elements [k0, k0 + k) of rows n0 to n0 + columns; the last one fills up.
template <typename W>
struct Panel {
  static HWY_INLINE void Pack(const GemmParams& params, int64_t n0,
                              int64_t columns, int64_t k0, size_t k,
                              float* panel) {
    const W* rows[kPlainTransposed];
    for (int64_t c = 0; c < kPanel; c += kPlainTransposed) {
      for (int64_t i = 0; i < kPlainTransposed; ++i) {
        rows[i] = params.w.row<W>(n0 + HWY_MIN(c + i, columns - 1)) + k0;
      }
      PackPlainColumns(rows, k, c, panel);
    }
  }
};

// BlockCodec stands for rows of blocks, which are widened first.
template <>
struct Panel<BlockCodec> {
  static HWY_INLINE void Pack(const GemmParams& params, int64_t n0,
                              int64_t columns, int64_t k0, size_t k,
                              float* panel) {
    const DType dtype = params.w.dtype;
    const BlockCodec& codec = *FindBlockCodec(dtype);
    HWY_ALIGN float wide[kTransposed * kBlockK];
    const float* rows[kTransposed];
    for (int64_t c = 0; c < kPanel; c += kTransposed) {
      for (int64_t i = 0; i < kTransposed; ++i) {
        rows[i] = wide + i * kBlockK;
        codec.decode(
            params.w.row<std::byte>(n0 + HWY_MIN(c + i, columns - 1)) +
                RowBytes(dtype, static_cast<size_t>(k0)),
            static_cast<int64_t>(k) / GetFormatInfo(dtype).block_elements,
            wide + i * kBlockK);
      }
      PackColumns(rows, k, c, panel);
    }
  }
};

// Steps in one turn of the loop: the end of one that has as many turns as there
// are steps is not foreseen.
constexpr int64_t kUnrolled = 8;

// sums[r][n] = one lane's chain of kRows rows of x with the panel. x: `steps`
// times an element of each of kTileRows rows.
template <int kRows, bool kAsksAhead>
HWY_INLINE void AddLane(const float* HWY_RESTRICT x,
                        const float* HWY_RESTRICT part, int64_t steps,
                        float* HWY_RESTRICT sums) {
  const DF df;
  VF c0[kRows], c1[kRows];
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) c0[r] = c1[r] = hn::Zero(df);
  const auto add = [&](const float* u, const float* w) HWY_ATTR {
    const VF w0 = hn::Load(df, w);
    const VF w1 = hn::Load(df, w + kLanes);
    HWY_UNROLL(12)
    for (int r = 0; r < kRows; ++r) {
      const VF v = hn::Set(df, u[r]);
      c0[r] = hn::MulAdd(v, w0, c0[r]);
      c1[r] = hn::MulAdd(v, w1, c1[r]);
    }
  };
  int64_t i = 0;
  for (; i + kUnrolled <= steps; i += kUnrolled) {
    if constexpr (kAsksAhead) {
      constexpr size_t kBytes = kUnrolled * kTileRows * sizeof(float);
      HWY_UNROLL(8)
      for (size_t line = 0; line < kBytes; line += 64) {
        hwy::Prefetch(reinterpret_cast<const char*>(x) + kXAheadBytes + line);
      }
    }
    HWY_UNROLL(8)
    for (int64_t u = 0; u < kUnrolled; ++u) {
      add(x + u * kTileRows, part + u * kPanel);
    }
    x += kUnrolled * kTileRows;
    part += kUnrolled * kPanel;
  }
  for (; i < steps; ++i, x += kTileRows, part += kPanel) add(x, part);
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) {
    hn::Store(c0[r], df, sums + r * kPanel);
    hn::Store(c1[r], df, sums + r * kPanel + kLanes);
  }
}

// lanes[p][j] = lane j's chain with panel p, `panels` of them.
template <int kRows>
HWY_NOINLINE void PanelTile(const float* HWY_RESTRICT x,
                            const float* HWY_RESTRICT panel, int64_t panels,
                            int64_t steps, WeightPrefetch& next,
                            float* HWY_RESTRICT lanes) {
  for (int64_t j = 0; j < kLaneCount; ++j) {
    next.Ask();
    const float* part = panel + j * kPart;
    float* sums = lanes + j * kTileSums;
    AddLane<kRows, kXAheadBytes != 0>(x, part, steps, sums);
    for (int64_t p = 1; p < panels; ++p) {
      part += kLaneCount * kPart;
      sums += kLaneCount * kTileSums;
      AddLane<kRows, false>(x, part, steps, sums);
    }
    x += steps * kTileRows;
  }
}

using PanelTileFn = void (*)(const float*, const float*, int64_t, int64_t,
                             WeightPrefetch&, float*);
#if HWY_ARCH_ARM_A64 || HWY_TARGET <= HWY_AVX3
constexpr PanelTileFn kTiles[kTileRows] = {
    &PanelTile<1>, &PanelTile<2>,  &PanelTile<3>,  &PanelTile<4>,
    &PanelTile<5>, &PanelTile<6>,  &PanelTile<7>,  &PanelTile<8>,
    &PanelTile<9>, &PanelTile<10>, &PanelTile<11>, &PanelTile<12>};
#else
constexpr PanelTileFn kTiles[kTileRows] = {&PanelTile<1>, &PanelTile<2>,
                                           &PanelTile<3>, &PanelTile<4>,
                                           &PanelTile<5>, &PanelTile<6>};
#endif

// sums[i] += lanes[0][i], .. added by the tree of StoreSums4; lanes lie
// kTileSums apart.
HWY_INLINE void AddLanes(const float* HWY_RESTRICT lanes, int64_t count,
                         float* HWY_RESTRICT sums) {
  const DF df;
  for (int64_t i = 0; i < count; i += kLaneCount) {
    const auto lane = [&](int64_t j) HWY_ATTR {
      return hn::Load(df, lanes + i + j * kTileSums);
    };
#if HWY_TARGET == HWY_SCALAR
    VF blocks[1] = {lane(0)};
#else
    VF blocks[kLanes / 4];
    for (int64_t b = 0; b < kLaneCount / 4; ++b) {
      blocks[b] = hn::Add(hn::Add(lane(4 * b), lane(4 * b + 2)),
                          hn::Add(lane(4 * b + 1), lane(4 * b + 3)));
    }
    for (int64_t half = kLaneCount / 8; half > 0; half /= 2) {
      for (int64_t b = 0; b < half; ++b) {
        blocks[b] = hn::Add(blocks[b], blocks[b + half]);
      }
    }
#endif
    hn::Store(hn::Add(hn::Load(df, sums + i), blocks[0]), df, sums + i);
  }
}

// Adds a block of k to the sums of kTileRows rows of x or fewer; each panel's
// are kTileSums apart.
HWY_INLINE void AddTile(const float* x, int64_t rows, const float* panel,
                        int64_t panels, int64_t steps, WeightPrefetch& next,
                        float* sums) {
  HWY_ALIGN float lanes[kPanels * kLanes * kTileSums];
  kTiles[rows - 1](x, panel, panels, steps, next, lanes);
  for (int64_t p = 0; p < panels; ++p) {
    AddLanes(lanes + p * kLaneCount * kTileSums, rows * kPanel,
             sums + p * kTileSums);
  }
}

// Where the tile of rows m .. m + kTileRows has its elements of the block of k
// that begins at k0: those of lane 0, of lane 1 and so on, each step by step.
HWY_INLINE float* PackedX(const GemmParams& params, int64_t m, int64_t k0,
                          int64_t k) {
  const int64_t rows =
      (params.x.rows() + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t width = (k + kLaneCount - 1) / kLaneCount * kLaneCount;
  return static_cast<float*>(params.workspace) + rows * k0 + m * width;
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
// A step of all lanes and rows at a time, transposed.
HWY_INLINE void PackTileX(const GemmParams& params, int64_t m, int64_t k0,
                          int64_t k) {
  float* to = PackedX(params, m, k0, k);
  const int64_t steps = (k + kLaneCount - 1) / kLaneCount;
  const int64_t rows = HWY_MIN(params.x.rows() - m, kTileRows);
  const float* x[16];
  // A missing row is the last one once more.
  for (int64_t r = 0; r < 16; ++r) {
    x[r] = params.x.row<float>(m + HWY_MIN(r, rows - 1)) + k0;
  }
  const __mmask16 there = FirstLanes(kTileRows);
  for (int64_t i = 0; i < steps; ++i, to += kTileRows) {
    const __mmask16 mask = FirstLanes(k - i * kLaneCount);
    __m512i v[16];
    HWY_UNROLL(16)
    for (int64_t r = 0; r < 16; ++r) {
      v[r] = r < kTileRows
                 ? _mm512_maskz_loadu_epi32(mask, x[r] + i * kLaneCount)
                 : _mm512_setzero_si512();
    }
    Transpose16(v);
    HWY_UNROLL(16)
    for (int64_t j = 0; j < 16; ++j) {
      _mm512_mask_storeu_epi32(to + j * steps * kTileRows, there, v[j]);
    }
  }
}
#else
// Eight elements of each row at a time where a vector holds as many,
// transposed.
HWY_INLINE void PackTileX(const GemmParams& params, int64_t m, int64_t k0,
                          int64_t k) {
  float* packed = PackedX(params, m, k0, k);
  const int64_t steps = (k + kLaneCount - 1) / kLaneCount;
  const int64_t rows = HWY_MIN(params.x.rows() - m, kTileRows);
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86_64
  static_assert(kLaneCount == 8 && kTileRows == 6);
  const float* x[kTileRows];
  // A missing row is the last one once more.
  for (int64_t r = 0; r < kTileRows; ++r) {
    x[r] = params.x.row<float>(m + HWY_MIN(r, rows - 1)) + k0;
  }
  for (; (i + 1) * kLaneCount <= k; ++i) {
    const auto at = [&](int64_t r) HWY_ATTR {
      return _mm256_loadu_ps(x[r] + i * kLaneCount);
    };
    // Pairs of rows by pairs of elements, then all rows of an element.
    const __m256 low01 = _mm256_unpacklo_ps(at(0), at(1));
    const __m256 high01 = _mm256_unpackhi_ps(at(0), at(1));
    const __m256 low23 = _mm256_unpacklo_ps(at(2), at(3));
    const __m256 high23 = _mm256_unpackhi_ps(at(2), at(3));
    const __m256 low45 = _mm256_unpacklo_ps(at(4), at(5));
    const __m256 high45 = _mm256_unpackhi_ps(at(4), at(5));
    const auto put = [&](int64_t j, __m256 rows0123, __m256 rows45,
                         bool upper) HWY_ATTR {
      const auto store = [&](int64_t lane, __m128 four, __m128 two) HWY_ATTR {
        float* to = packed + (lane * steps + i) * kTileRows;
        _mm_storeu_ps(to, four);
        const __m128d pair = _mm_castps_pd(two);
        double* rest = reinterpret_cast<double*>(to + 4);
        upper ? _mm_storeh_pd(rest, pair) : _mm_storel_pd(rest, pair);
      };
      store(j, _mm256_castps256_ps128(rows0123),
            _mm256_castps256_ps128(rows45));
      store(j + 4, _mm256_extractf128_ps(rows0123, 1),
            _mm256_extractf128_ps(rows45, 1));
    };
    constexpr int kLow = 0x44, kHigh = 0xee;
    put(0, _mm256_shuffle_ps(low01, low23, kLow), low45, false);
    put(1, _mm256_shuffle_ps(low01, low23, kHigh), low45, true);
    put(2, _mm256_shuffle_ps(high01, high23, kLow), high45, false);
    put(3, _mm256_shuffle_ps(high01, high23, kHigh), high45, true);
  }
#endif
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = params.x.row<float>(m + r) + k0;
    for (int64_t step = i; step < steps; ++step) {
      for (int64_t j = 0; j < kLaneCount; ++j) {
        const int64_t at = step * kLaneCount + j;
        packed[(j * steps + step) * kTileRows + r] = at < k ? from[at] : 0.0f;
      }
    }
  }
}
#endif

// What PanelBlocks asks for.
template <typename W>
struct PanelKernel {
  using Element = float;
  static constexpr int64_t kPanel = kPanels * gemm::kPanel;
  static constexpr int64_t kPanelElements = kPanels * kLaneCount * kPart;
  static constexpr int64_t kTileRows = gemm::kTileRows;
  static constexpr int64_t kBlockK = gemm::kBlockK;
  static constexpr int64_t kAsks = kLaneCount;

  static HWY_NOINLINE void PackX(const GemmParams& params, int64_t m,
                                 int64_t k0, int64_t k) {
    PackTileX(params, m, k0, k);
  }
  static HWY_NOINLINE void Pack(const GemmParams& params, int64_t n0,
                                int64_t columns, int64_t k0, int64_t k,
                                float* panel) {
    for (int64_t n = 0; n < columns; n += gemm::kPanel) {
      Panel<W>::Pack(params, n0 + n, HWY_MIN(columns - n, gemm::kPanel), k0,
                     static_cast<size_t>(k), panel);
      panel += kLaneCount * kPart;
    }
  }
  static HWY_NOINLINE void AddTile(const GemmParams& params, int64_t m,
                                   int64_t rows, int64_t columns, int64_t k0,
                                   int64_t k, const float* panel,
                                   WeightPrefetch& next, float* sums) {
    if (k0 == 0) std::fill(sums, sums + kPanels * kTileSums, 0.0f);
    gemm::AddTile(PackedX(params, m, k0, k), rows, panel,
                  (columns + gemm::kPanel - 1) / gemm::kPanel,
                  (k + kLaneCount - 1) / kLaneCount, next, sums);
  }
  static void Finish(const GemmParams& params, int64_t m, int64_t rows,
                     int64_t n0, int64_t columns, const float* sums) {
    for (int64_t n = 0; n < columns; n += gemm::kPanel, sums += kTileSums) {
      for (int64_t r = 0; r < rows; ++r) {
        FinishRow(params, m + r, n0 + n, HWY_MIN(columns - n, gemm::kPanel),
                  sums + r * gemm::kPanel);
      }
    }
  }
  static void Publish() {}
  static bool Streams(const TensorView&) { return false; }
};

}  // namespace gemm
}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
