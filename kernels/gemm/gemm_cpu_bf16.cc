// gemm over bf16 weights on x86-64 with AVX512_BF16, whose products of pairs
// (vdpbf16ps: 32 multiply-adds an instruction) are twice as many as float32's.
// x is rounded to bf16 once, to the nearest, ties to even; f16 weights are
// rounded too, those that bf16 does not hold for who asks for the row by name.
//
// Batch invariance: every y[m, n] is summed in one order, like cpu_simd's with
// pairs of k for elements. k is cut into blocks of kBlockK. In a block, lane j
// of 8 has one chain of products of the pairs j, j + 8, .. in ascending order,
// with zeros beyond the row's end; lanes are added by one fixed tree, and
// blocks in ascending order. Few rows have the lanes of two rows of w in a
// vector, many have lanes one after another. How a product of pairs rounds is
// the instruction's (it takes denormal numbers as zeros), and is the same for
// both.
//
//   m <= kMaxDirectRows: weights from where they lie, 4 rows at a time, with up
//     to kTallRows of x.
//   more: panel_blocks.h. A panel is kPanel rows of w by a block of k,
//     transposed by pairs: a vector holds a pair of 16 rows, and a lane is a
//     part of the panel and a pass of its own over it (8 rather than 16: passes
//     are twice as long, and begin and end half as often). A tile of 12 x 2
//     vectors takes 2 loads and 12 broadcasts for 24 products.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "kernels/gemm/avx512.h"
#include "kernels/gemm/finish.h"
#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/panel_blocks.h"
#include "memory/device/thread_pool.h"

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace inlay::bf16 {
namespace {

constexpr int64_t kVector = 16;         // pairs, or sums
constexpr int64_t kLanes = 8;           // of a row
constexpr int64_t kStep = 2 * kVector;  // elements of k: two pairs of each lane
constexpr int64_t kBlockK = 2048;
constexpr int64_t kMaxDirectRows = 32;
constexpr int64_t kColumns = 4;  // rows of w that few rows of x go over at once
constexpr int64_t kTallRows = 8;
constexpr int64_t kPanel = 2 * kVector;
constexpr int64_t kTileRows = 12;
// What is put in order at a time, so that where it goes to stays in L1.
constexpr int64_t kChunkSteps = 8;
constexpr int64_t kChunk = kChunkSteps * kStep;
constexpr int64_t kTileSums = kTileRows * kPanel;
// A part and its neighbour's begin must not fall on the same set of L1.
constexpr int64_t kPart = (kBlockK / (2 * kLanes) + 1) * kPanel;
// Which pass a lane is, or lane a pass is: the tree of SumLanes adds 4 to 0,
// then 6 to 2 and so on, so that few sums wait for their other half.
constexpr int64_t kPassOf[kLanes] = {0, 4, 2, 6, 1, 5, 3, 7};
// Less work than this costs less than waking a thread.
constexpr int64_t kGrainBytes = 32 << 10;
constexpr int64_t kGrainSteps = 1 << 10;

// Pairs of a lane: 2 Steps().
int64_t Steps(int64_t k) { return (k + kStep - 1) / kStep; }

// The pairs of 32 floats, rounded. NaNs stay NaNs.
HWY_INLINE __m512i Round(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// Of x from element k on, with zeros from `k_end` on.
HWY_INLINE __m512i RoundStep(const float* x, int64_t k, int64_t k_end) {
  return Round(_mm512_maskz_loadu_ps(FirstLanes(k_end - k), x + k),
               _mm512_maskz_loadu_ps(FirstLanes(k_end - k - 16), x + k + 16));
}

template <DType kWeight>
HWY_INLINE __m512i Pairs(__m512i w) {
  if constexpr (kWeight == DType::kBF16) return w;
  return Round(_mm512_cvtph_ps(_mm512_castsi512_si256(w)),
               _mm512_cvtph_ps(_mm512_extracti64x4_epi64(w, 1)));
}
// A step of a row.
template <DType kWeight>
HWY_INLINE __m512i LoadStep(const uint16_t* w) {
  return Pairs<kWeight>(_mm512_loadu_si512(w));
}
// The first `count` < kStep elements, then zeros.
template <DType kWeight>
HWY_INLINE __m512i LoadStepTail(const uint16_t* w, int64_t count) {
  const auto mask = static_cast<__mmask32>((1u << count) - 1);
  return Pairs<kWeight>(_mm512_maskz_loadu_epi16(mask, w));
}
// A pair of each lane of two rows, those of `first` before those of `second`.
template <DType kWeight>
HWY_INLINE __m512i LoadTwo(const uint16_t* first, const uint16_t* second) {
  const auto half = [](const uint16_t* w) {
    return reinterpret_cast<const __m256i*>(w);
  };
  return Pairs<kWeight>(_mm512_inserti64x4(
      _mm512_castsi256_si512(_mm256_loadu_si256(half(first))),
      _mm256_loadu_si256(half(second)), 1));
}
// The elements of `mask`, and zeros.
template <DType kWeight>
HWY_INLINE __m512i LoadTwoTail(const uint16_t* first, const uint16_t* second,
                               __mmask16 mask) {
  return Pairs<kWeight>(_mm512_inserti64x4(
      _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(mask, first)),
      _mm256_maskz_loadu_epi16(mask, second), 1));
}

HWY_INLINE __m512 AddProducts(__m512 sums, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(w),
                          reinterpret_cast<__m512bh>(x));
}

// The sums of the lanes of four rows of w, two in a vector: upper half to lower
// half until one is left.
HWY_INLINE __m128 SumLanes(const __m512* v) {
  __m128 q[4];
  for (int i = 0; i < 2; ++i) {
    q[2 * i] = _mm_add_ps(_mm512_castps512_ps128(v[i]),
                          _mm512_extractf32x4_ps(v[i], 1));
    q[2 * i + 1] = _mm_add_ps(_mm512_extractf32x4_ps(v[i], 2),
                              _mm512_extractf32x4_ps(v[i], 3));
  }
  _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
  return _mm_add_ps(_mm_add_ps(q[0], q[2]), _mm_add_ps(q[1], q[3]));
}

// Few rows of x, cut into groups of at most kTallRows that go over the same
// rows of w. A group lies in the workspace step by step, its rows side by side.
struct FewRows {
  int64_t rows, groups, steps;
  uint16_t* data;

  FewRows(const GemmDesc& desc, const GemmParams& params)
      : rows(params.x.rows()),
        groups((rows + kTallRows - 1) / kTallRows),
        steps(Steps(desc.k)),
        data(static_cast<uint16_t*>(params.workspace)) {}
  int64_t First(int64_t group) const { return group * rows / groups; }
  int64_t Count(int64_t group) const { return First(group + 1) - First(group); }
  uint16_t* At(int64_t group, int64_t step) const {
    return data + (First(group) * steps + Count(group) * step) * kStep;
  }
};

void RoundSteps(const GemmDesc& desc, const GemmParams& params,
                const FewRows& x, int64_t begin, int64_t end) {
  for (int64_t g = 0; g < x.groups; ++g) {
    for (int64_t r = 0; r < x.Count(g); ++r) {
      const float* from = params.x.row<float>(x.First(g) + r);
      for (int64_t s = begin; s < end; ++s) {
        _mm512_storeu_si512(x.At(g, s) + r * kStep,
                            RoundStep(from, s * kStep, desc.k));
      }
    }
  }
}

// The sums of kRows rows of x with kColumns rows of w, two in a vector.
template <int kRows>
struct Sums {
  static constexpr int kVectors = kColumns / 2;
  __m512 of[kRows][kVectors];

  // Not by initialisers: a generated constructor lacks the attributes.
  HWY_INLINE void Clear() {
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int i = 0; i < kVectors; ++i) of[r][i] = _mm512_setzero_ps();
    }
  }
  // A pair of each lane; rows of x are kStep apart.
  HWY_INLINE void Add(const __m512i* w, const uint16_t* x) {
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const __m512i u = _mm512_broadcast_i64x4(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + r * kStep)));
      HWY_UNROLL(2)
      for (int i = 0; i < kVectors; ++i) {
        of[r][i] = AddProducts(of[r][i], w[i], u);
      }
    }
  }
};

// Rows n, n + apart, .. of w, count of them (at most kColumns), with the kRows
// rows of x from m on, which are at `x`.
template <DType kWeight, int kRows>
HWY_NOINLINE void DirectTile(const GemmDesc& desc, const GemmParams& params,
                             const uint16_t* x, int64_t m, int64_t n,
                             int64_t apart, int64_t count) {
  const uint16_t* w[kColumns];
  // A missing row is the last one once more, and dropped.
  for (int64_t c = 0; c < kColumns; ++c) {
    w[c] = params.w.row<uint16_t>(n + apart * std::min(c, count - 1));
  }
  const int64_t rest = desc.k % kStep;
  const int64_t k_full = desc.k - rest;
  __m128 totals[kRows];
  for (int r = 0; r < kRows; ++r) totals[r] = _mm_setzero_ps();
  for (int64_t k0 = 0; k0 < desc.k; k0 += kBlockK) {
    Sums<kRows> sums;
    sums.Clear();
    __m512i v[kColumns / 2];
    const int64_t block_end = std::min(k_full, k0 + kBlockK);
    for (int64_t k = k0; k < block_end; k += kStep, x += kRows * kStep) {
      HWY_UNROLL(2)
      for (int64_t h = 0; h < kStep; h += 2 * kLanes) {
        HWY_UNROLL(2)
        for (int i = 0; i < kColumns / 2; ++i) {
          v[i] = LoadTwo<kWeight>(w[2 * i] + k + h, w[2 * i + 1] + k + h);
        }
        sums.Add(v, x + h);
      }
    }
    if (rest != 0 && k_full - k0 < kBlockK) {
      for (int64_t h = 0; h < kStep; h += 2 * kLanes) {
        for (int i = 0; i < kColumns / 2; ++i) {
          v[i] = LoadTwoTail<kWeight>(w[2 * i] + k_full + h,
                                      w[2 * i + 1] + k_full + h,
                                      FirstLanes(rest - h));
        }
        sums.Add(v, x + h);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      totals[r] = _mm_add_ps(totals[r], SumLanes(sums.of[r]));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float out[kColumns];
    _mm_storeu_ps(out, totals[r]);
    for (int64_t c = 0; c < count; ++c) {
      FinishGemmRow(params, m + r, n + c * apart, 1, out + c);
    }
  }
}

using DirectTileFn = void (*)(const GemmDesc&, const GemmParams&,
                              const uint16_t*, int64_t, int64_t, int64_t,
                              int64_t);
template <DType kWeight>
constexpr DirectTileFn kDirectTiles[kTallRows] = {
    &DirectTile<kWeight, 1>, &DirectTile<kWeight, 2>, &DirectTile<kWeight, 3>,
    &DirectTile<kWeight, 4>, &DirectTile<kWeight, 5>, &DirectTile<kWeight, 6>,
    &DirectTile<kWeight, 7>, &DirectTile<kWeight, 8>};

template <DType kWeight>
void RunDirect(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  const FewRows x(desc, params);
  if (x.rows == 0) return;
  pool.ParallelFor(x.steps, kGrainSteps / x.rows,
                   [&](int64_t begin, int64_t end) {
                     RoundSteps(desc, params, x, begin, end);
                   });
  pool.ParallelFor(
      desc.n, kGrainBytes / (2 * desc.k) + 1, [&](int64_t begin, int64_t end) {
        ForEachInStreams(
            begin, end, kColumns, [&](int64_t n, int64_t apart, int64_t count) {
              for (int64_t g = 0; g < x.groups; ++g) {
                kDirectTiles<kWeight>[x.Count(g) - 1](
                    desc, params, x.At(g, 0), x.First(g), n, apart, count);
              }
            });
      });
}

// to = a lane's chains of kRows rows of x with the panel (2 `steps` pairs),
// then `folds` tiles of sums added, `top` and those before it, and `before`,
// where that is not null. x: a pair of each of kTileRows rows, then the next
// ones.
template <int kRows>
HWY_NOINLINE void PanelTile(const uint32_t* x, const uint32_t* part,
                            int64_t steps, WeightPrefetch& next,
                            const float* top, int folds, const float* before,
                            float* to) {
  __m512 c0[kRows], c1[kRows];
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) c0[r] = c1[r] = _mm512_setzero_ps();
  for (int half = 0; half < 2; ++half) {
    next.Ask();
    for (int64_t i = 0; i < steps; ++i, x += kTileRows, part += kPanel) {
      const __m512i w0 = _mm512_load_si512(part);
      const __m512i w1 = _mm512_load_si512(part + kVector);
      HWY_UNROLL(12)
      for (int r = 0; r < kRows; ++r) {
        const __m512i v = _mm512_set1_epi32(static_cast<int>(x[r]));
        c0[r] = AddProducts(c0[r], w0, v);
        c1[r] = AddProducts(c1[r], w1, v);
      }
    }
  }
  const auto add = [&](const float* sums) {
    HWY_UNROLL(12)
    for (int r = 0; r < kRows; ++r) {
      c0[r] = _mm512_add_ps(c0[r], _mm512_load_ps(sums + r * kPanel));
      c1[r] = _mm512_add_ps(c1[r], _mm512_load_ps(sums + r * kPanel + kVector));
    }
  };
  for (int i = 0; i < folds; ++i) add(top - i * kTileSums);
  if (before != nullptr) add(before);
  HWY_UNROLL(12)
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(to + r * kPanel, c0[r]);
    _mm512_store_ps(to + r * kPanel + kVector, c1[r]);
  }
}

using PanelTileFn = void (*)(const uint32_t*, const uint32_t*, int64_t,
                             WeightPrefetch&, const float*, int, const float*,
                             float*);
constexpr PanelTileFn kPanelTiles[kTileRows] = {
    &PanelTile<1>, &PanelTile<2>,  &PanelTile<3>,  &PanelTile<4>,
    &PanelTile<5>, &PanelTile<6>,  &PanelTile<7>,  &PanelTile<8>,
    &PanelTile<9>, &PanelTile<10>, &PanelTile<11>, &PanelTile<12>};

// Pair 4 l + j of row i becomes pair 4 l + i of v[j].
HWY_INLINE void Transpose4(__m512i* v) {
  const __m512i t0 = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i t1 = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i t2 = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i t3 = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(t0, t2);
  v[1] = _mm512_unpackhi_epi64(t0, t2);
  v[2] = _mm512_unpacklo_epi64(t1, t3);
  v[3] = _mm512_unpackhi_epi64(t1, t3);
}
HWY_INLINE void Store4(uint32_t* to, __m128i v) {
  _mm_store_si128(reinterpret_cast<__m128i*>(to), v);
}

// Elements [begin, end) of eight rows of w, `apart` bytes apart, whole steps,
// to their columns of a panel.
void PackEight(const uint16_t* w, size_t apart, int64_t begin, int64_t end,
               uint32_t* panel) {
  // Pairs 4 l + j and 4 l + 4 + j of eight rows, from four and four.
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const auto put = [](uint32_t* to, __m256i v) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), v);
  };
  const auto* row = reinterpret_cast<const std::byte*>(w + begin);
  uint32_t* to = panel + begin / kStep * 2 * kPanel;
  for (; begin < end; begin += kStep, row += 2 * kStep, to += 2 * kPanel) {
    __m512i four[2][4];
    HWY_UNROLL(2)
    for (size_t h = 0; h < 2; ++h) {
      HWY_UNROLL(4)
      for (size_t i = 0; i < 4; ++i) {
        four[h][i] = _mm512_loadu_si512(row + (4 * h + i) * apart);
      }
      Transpose4(four[h]);
    }
    HWY_UNROLL(4)
    for (int64_t j = 0; j < 4; ++j) {
      const __m512i a = _mm512_permutex2var_epi64(four[0][j], low, four[1][j]);
      const __m512i b = _mm512_permutex2var_epi64(four[0][j], high, four[1][j]);
      uint32_t* first = to + kPassOf[j] * kPart;
      uint32_t* second = to + kPassOf[j + 4] * kPart;
      put(first, _mm512_castsi512_si256(a));
      put(second, _mm512_extracti64x4_epi64(a, 1));
      put(first + kPanel, _mm512_castsi512_si256(b));
      put(second + kPanel, _mm512_extracti64x4_epi64(b, 1));
    }
  }
}

// What PanelBlocks asks for.
template <DType kWeight>
struct PanelKernel {
  using Element = uint32_t;  // a pair
  static constexpr int64_t kPanel = bf16::kPanel;
  static constexpr int64_t kPanelElements = kLanes * kPart;
  static constexpr int64_t kTileRows = bf16::kTileRows;
  static constexpr int64_t kBlockK = bf16::kBlockK;
  static constexpr int64_t kAsks = 2 * kLanes;

  // Where the tile of rows m .. m + kTileRows has its pairs of the block of k
  // that begins at k0: those of the first pass, of the second and so on,
  // ascending.
  static uint32_t* PackedX(const GemmParams& params, int64_t m, int64_t k0,
                           int64_t k) {
    const int64_t rows =
        (params.x.rows() + kTileRows - 1) / kTileRows * kTileRows;
    return static_cast<uint32_t*>(params.workspace) + rows * k0 / 2 +
           m * Steps(k) * kVector;
  }

  // Four rows at a time: more, lying a power of two apart, would find no room
  // in L1. A missing row is the last one once more, and dropped.
  static void PackX(const GemmParams& params, int64_t m, int64_t k0,
                    int64_t k) {
    uint32_t* packed = PackedX(params, m, k0, k);
    const int64_t steps = Steps(k);
    for (int64_t s0 = 0; s0 < steps; s0 += kChunkSteps) {
      for (int64_t r = 0; r < kTileRows; r += 4) {
        const float* x[4];
        for (int64_t i = 0; i < 4; ++i) {
          x[i] = params.x.row<float>(std::min(m + r + i, params.x.rows() - 1)) +
                 k0;
        }
        for (int64_t s = s0; s < std::min(steps, s0 + kChunkSteps); ++s) {
          __m512i v[4];
          HWY_UNROLL(4)
          for (int i = 0; i < 4; ++i) v[i] = RoundStep(x[i], s * kStep, k);
          Transpose4(v);
          HWY_UNROLL(4)
          for (int64_t i = 0; i < 4; ++i) {
            const auto at = [&](int64_t lane) {
              return packed + (kPassOf[lane] * 2 * steps + 2 * s) * kTileRows +
                     r;
            };
            Store4(at(i), _mm512_castsi512_si128(v[i]));
            Store4(at(i + 4), _mm512_extracti32x4_epi32(v[i], 1));
            Store4(at(i) + kTileRows, _mm512_extracti32x4_epi32(v[i], 2));
            Store4(at(i + 4) + kTileRows, _mm512_extracti32x4_epi32(v[i], 3));
          }
        }
      }
    }
  }

  // The last row of w fills up.
  static void Pack(const GemmParams& params, int64_t n0, int64_t columns,
                   int64_t k0, int64_t k, uint32_t* panel) {
    int64_t done = 0;
    if (kWeight == DType::kBF16 && columns == kPanel) {
      done = k / kStep * kStep;
      for (int64_t at = 0; at < done; at += kChunk) {
        for (int64_t c = 0; c < kPanel; c += 8) {
          PackEight(params.w.row<uint16_t>(n0 + c) + k0,
                    params.w.row_stride_bytes, at, std::min(done, at + kChunk),
                    panel + c);
        }
      }
    }
    for (int64_t c = 0; c < kPanel; c += kVector) {
      const uint16_t* w[kVector];
      for (int64_t i = 0; i < kVector; ++i) {
        w[i] = params.w.row<uint16_t>(n0 + std::min(c + i, columns - 1)) + k0;
      }
      uint32_t* to = panel + c + done / kStep * 2 * kPanel;
      for (int64_t at = done; at < k; at += kStep, to += 2 * kPanel) {
        __m512i v[kVector];
        for (int64_t i = 0; i < kVector; ++i) {
          v[i] = at + kStep <= k ? LoadStep<kWeight>(w[i] + at)
                                 : LoadStepTail<kWeight>(w[i] + at, k - at);
        }
        Transpose16(v);
        HWY_UNROLL(16)
        for (int64_t i = 0; i < kVector; ++i) {
          _mm512_store_si512(
              to + kPassOf[i % kLanes] * kPart + i / kLanes * kPanel, v[i]);
        }
      }
    }
  }

  static void AddTile(const GemmParams& params, int64_t m, int64_t rows,
                      int64_t /*columns*/, int64_t k0, int64_t k,
                      const uint32_t* panel, WeightPrefetch& next,
                      float* sums) {
    // Sums of passes that wait for others.
    alignas(64) float stack[3 * kTileSums];
    int depth = 0;
    const int64_t steps = Steps(k);
    const uint32_t* x = PackedX(params, m, k0, k);
    for (unsigned pass = 0; pass < kLanes; ++pass) {
      const int folds = std::countr_one(pass);
      const bool last = pass == kLanes - 1;
      const float* top = stack + std::max(depth - 1, 0) * kTileSums;
      depth -= folds;
      kPanelTiles[rows - 1](x + pass * 2 * steps * kTileRows,
                            panel + pass * kPart, steps, next, top, folds,
                            last && k0 > 0 ? sums : nullptr,
                            last ? sums : stack + depth * kTileSums);
      ++depth;
    }
  }

  static void Finish(const GemmParams& params, int64_t m, int64_t rows,
                     int64_t n0, int64_t columns, const float* sums) {
    if (columns < kPanel) {
      for (int64_t r = 0; r < rows; ++r, sums += kPanel) {
        FinishGemmRow(params, m + r, n0, columns, sums);
      }
      return;
    }
    __m512 bias[2] = {};
    for (int i = 0; params.bias != nullptr && i < 2; ++i) {
      bias[i] = _mm512_loadu_ps(params.bias + n0 + i * kVector);
    }
    const bool stream = Streams(params.y);
    for (int64_t r = 0; r < rows; ++r, sums += kPanel) {
      float* y = params.y.row<float>(m + r) + n0;
      __m512 v[2];
      HWY_UNROLL(2)
      for (int i = 0; i < 2; ++i) {
        v[i] = _mm512_load_ps(sums + i * kVector);
        if (params.bias != nullptr) v[i] = _mm512_add_ps(v[i], bias[i]);
      }
      if (!params.residual.empty()) {
        const float* residual = params.residual.row<float>(m + r) + n0;
        HWY_UNROLL(2)
        for (int i = 0; i < 2; ++i) {
          v[i] = _mm512_add_ps(v[i], _mm512_loadu_ps(residual + i * kVector));
        }
      }
      HWY_UNROLL(2)
      for (int i = 0; i < 2; ++i) {
        if (stream) {
          _mm512_stream_ps(y + i * kVector, v[i]);
        } else {
          _mm512_storeu_ps(y + i * kVector, v[i]);
        }
      }
    }
  }

  static void Publish() { _mm_sfence(); }

  // Whether y goes past the caches: rows that lie a power of two apart are
  // misses one after another, for which products wait, and L2 has no room for
  // it.
  static bool Streams(const TensorView& y) {
    constexpr int64_t kBytes = 1 << 20;
    constexpr size_t kLine = 64;
    return y.rows() * static_cast<int64_t>(y.row_stride_bytes) > kBytes &&
           (reinterpret_cast<uintptr_t>(y.data) | y.row_stride_bytes) % kLine ==
               0;
  }
};

template <DType kWeight>
void Run(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  if (params.x.rows() <= kMaxDirectRows) {
    RunDirect<kWeight>(desc, params, pool);
  } else {
    PanelBlocks<PanelKernel<kWeight>>::Run(desc, params, pool);
  }
}

}  // namespace
}  // namespace inlay::bf16
HWY_POP_ATTRIBUTES

namespace inlay {

const char* GemmCpuBf16Refuses(const GemmDesc& desc) {
  if (desc.activation != DType::kF32 || desc.output != DType::kF32) {
    return "activations must be f32";
  }
  if (desc.weight != DType::kBF16 && desc.weight != DType::kF16) {
    return "weights must be bf16 or f16";
  }
  return __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512bf16")
             ? nullptr
             : "needs AVX-512 with products of bf16";
}

size_t GemmCpuBf16WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  constexpr int64_t kTile = bf16::kTileRows;
  const int64_t rows = (max_rows + kTile - 1) / kTile * kTile;
  const int64_t k = (desc.k + bf16::kStep - 1) / bf16::kStep * bf16::kStep;
  return static_cast<size_t>(rows * k) * sizeof(uint16_t);
}

absl::Status RunGemmCpuBf16(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream) {
  const auto run = desc.weight == DType::kF16 ? bf16::Run<DType::kF16>
                                              : bf16::Run<DType::kBF16>;
  run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
