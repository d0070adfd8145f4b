// gemm over f16 weights on x86-64 with AMX, one or two rows of x: by vectors
// what gemm_cpu_amx_f16.cc does by tiles, to the bit; its head says what that
// is. Memory is the bound: rows of w are read as they lie in their file, four,
// or two, at a time, 16 that lie far apart in turn by a block of k, as its x
// stays in L1 and sums of 16 are vectors.
//
// From L1 one core (3.7 GHz) takes 9 cycles for 32 weights and a row of x, and
// 1 to add chains up; memory gives them in 15.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/gemm/amx_bands.h"
#include "kernels/gemm/amx_f16.h"
#include "kernels/gemm/amx_parts.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/finish.h"
#include "memory/device/thread_pool.h"

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
namespace inlay::amx {
namespace {

// How far ahead vectors ask for weights in L2, in each row: a block of k, which
// is wanted when the other rows have had theirs.
constexpr int64_t kAheadBytes = 1024;
constexpr int64_t kProducts = 3;

// While it is there denormal numbers are zeros to the thread's vectors, and
// they round to the nearest, as tiles do.
class LikeTiles {
 public:
  LikeTiles() : before_(_mm_getcsr()) { Set(0x1f80 | 0x8000 | 0x0040); }
  ~LikeTiles() { Set(before_); }
  LikeTiles(const LikeTiles&) = delete;
  LikeTiles& operator=(const LikeTiles&) = delete;

 private:
  // No access to memory, nor a call that makes one, is moved across this.
  static void Set(uint32_t state) {
    asm volatile("ldmxcsr %0" : : "m"(state) : "memory");
  }
  const uint32_t before_;
};

// x for vectors, in the workspace: of each element the high part and, in the
// lower half of its word, the low one, so that a row stays in L1; rows of whole
// steps, zeros beyond k.
struct WideX {
  int64_t steps;
  uint32_t* data;

  WideX(const GemmDesc& desc, const GemmParams& params)
      : steps((desc.k + kStep - 1) / kStep),
        data(static_cast<uint32_t*>(params.workspace)) {}
  static int64_t Bytes(int64_t k, int64_t rows) {
    return rows * ((k + kStep - 1) / kStep) * kStep * 4;
  }
  int64_t row_words() const { return steps * kStep; }
  const uint32_t* At(int64_t k) const { return data + k; }

  void Pack(const GemmDesc& desc, const GemmParams& params, int64_t r,
            int64_t step) const {
    const float* x = params.x.row<float>(r) + step * kStep;
    uint32_t* to = data + r * row_words() + step * kStep;
    for (int64_t i = 0; i < kStep; i += 16) {
      __m512 low, high;
      const __mmask16 mask = FirstLanes(desc.k - step * kStep - i);
      SplitInTwo(_mm512_maskz_loadu_ps(mask, x + i), low, high);
      _mm512_storeu_si512(to + i, JoinInPairs(low, high));
    }
  }
};

// Vectors of chains of 16 rows of w with a row of x, of each product.
using Pairs = float[kProducts][kTileRows][16];

// The chains of a half of the elements of steps, kRows rows of x with kColumns
// of w.
template <int kRows, int kColumns, bool kAny>
struct Chains {
  __m512 low_high[kRows][kColumns];  // low w times high x
  __m512 high_low[kRows][kColumns];
  __m512 high_high[kRows][kColumns];

  // Not by initialisers: a generated constructor lacks the target's attribute.
  HWY_INLINE void Clear() {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int c = 0; c < kColumns; ++c) {
        low_high[r][c] = high_low[r][c] = high_high[r][c] = _mm512_setzero_ps();
      }
    }
  }
  // Half of a step at x and, by load(c), of row c of w.
  template <typename Load>
  HWY_INLINE void Add(const uint32_t* x, int64_t row_words, Load load) {
    __m512 x_low[kRows], x_high[kRows];
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const __m512i both = _mm512_loadu_si512(x + r * row_words);
      x_low[r] = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
      x_high[r] = HighHalf(_mm512_castsi512_ps(both));
    }
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      __m512 low, high;
      SplitWeights<kAny>(load(c), low, high);
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        low_high[r][c] = _mm512_fmadd_ps(low, x_high[r], low_high[r][c]);
        high_low[r][c] = _mm512_fmadd_ps(high, x_low[r], high_low[r][c]);
        high_high[r][c] = _mm512_fmadd_ps(high, x_high[r], high_high[r][c]);
      }
    }
  }
  HWY_INLINE void AddZeros() {
    const __m512 zero = _mm512_setzero_ps();
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int c = 0; c < kColumns; ++c) {
        low_high[r][c] = _mm512_add_ps(low_high[r][c], zero);
        high_low[r][c] = _mm512_add_ps(high_low[r][c], zero);
        high_high[r][c] = _mm512_add_ps(high_high[r][c], zero);
      }
    }
  }
};

// Pairs of chains 0 to 15 and 16 to 31, those of row c of w to row column + c.
template <class Half>
HWY_INLINE void StorePairs(const Half& first, const Half& second, int rows,
                           int columns, Pairs* pairs, int64_t column) {
  HWY_UNROLL(4)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(4)
    for (int c = 0; c < columns; ++c) {
      const int64_t to = column + c;
      _mm512_store_ps(pairs[r][0][to], _mm512_add_ps(first.low_high[r][c],
                                                     second.low_high[r][c]));
      _mm512_store_ps(pairs[r][1][to], _mm512_add_ps(first.high_low[r][c],
                                                     second.high_low[r][c]));
      _mm512_store_ps(pairs[r][2][to], _mm512_add_ps(first.high_high[r][c],
                                                     second.high_high[r][c]));
    }
  }
}

// Pairs of chains of kRows rows of x with the rows at w, a block of k.
template <int kRows, int kColumns, bool kAny>
HWY_NOINLINE void AddBlock(const uint16_t* const* w, const uint32_t* x,
                           int64_t row_words, Pairs* pairs, int64_t column) {
  const uint16_t* from[kColumns];
  HWY_UNROLL(4)
  for (int c = 0; c < kColumns; ++c) from[c] = w[c];
  Chains<kRows, kColumns, kAny> first, second;
  first.Clear();
  second.Clear();
  HWY_UNROLL(1)
  for (int64_t k = 0; k < kBlock; k += kStep, x += kStep) {
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) {
      _mm_prefetch(reinterpret_cast<const char*>(from[c] + k) + kAheadBytes,
                   _MM_HINT_T1);
    }
    first.Add(x, row_words, [&](int c) { return Widen(from[c] + k); });
    second.Add(x + 16, row_words,
               [&](int c) { return Widen(from[c] + k + 16); });
  }
  StorePairs(first, second, kRows, kColumns, pairs, column);
}

// The same of less than a block.
template <int kRows, int kColumns, bool kAny>
HWY_NOINLINE void AddLastBlock(const uint16_t* const* w, const uint32_t* x,
                               int64_t row_words, int64_t count, Pairs* pairs,
                               int64_t column) {
  Chains<kRows, kColumns, kAny> first, second;
  first.Clear();
  second.Clear();
  for (int64_t k = 0; k < count; k += kStep, x += kStep) {
    first.Add(x, row_words, [&](int c) { return Widen(w[c] + k, count - k); });
    second.Add(x + 16, row_words,
               [&](int c) { return Widen(w[c] + k + 16, count - k - 16); });
  }
  if (count <= kBlock - kStep) {
    first.AddZeros();
    second.AddZeros();
  }
  StorePairs(first, second, kRows, kColumns, pairs, column);
}

template <int kRows, int kColumns, bool kAny>
HWY_INLINE void AddChains(const uint16_t* const* w, const uint32_t* x,
                          int64_t row_words, int64_t count, Pairs* pairs,
                          int64_t column) {
  if (count >= kBlock) {
    AddBlock<kRows, kColumns, kAny>(w, x, row_words, pairs, column);
  } else {
    AddLastBlock<kRows, kColumns, kAny>(w, x, row_words, count, pairs, column);
  }
}

bool AllNumbers(const float* values, int64_t count) {
  return std::all_of(values, values + count,
                     [](float value) { return value == value; });
}

// y of group g with `rows` rows of x.
void FinishGroup(const GemmParams& params, const Streams& streams, int64_t g,
                 int64_t rows, const float* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < streams.rows(g); ++c) {
      FinishGemmRow(params, r, streams.row(g, c), 1, sums + r * kTileRows + c);
    }
  }
}

// Elements l to l + 4 of 16 rows: to[i] has l + i of all.
HWY_INLINE void TransposeFour(const float (*rows)[16], int l, __m512* to) {
  __m512 v[4];
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_castps128_ps512(_mm_load_ps(rows[i] + l));
    v[i] = _mm512_insertf32x4(v[i], _mm_load_ps(rows[i + 4] + l), 1);
    v[i] = _mm512_insertf32x4(v[i], _mm_load_ps(rows[i + 8] + l), 2);
    v[i] = _mm512_insertf32x4(v[i], _mm_load_ps(rows[i + 12] + l), 3);
  }
  const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
  const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
  const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
  const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
  to[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
  to[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
  to[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
  to[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
}

// Adds a quarter of the pairs of 16 rows of w to their sums. All at once would
// outlast what the processor looks ahead, and memory would have nothing to do.
HWY_NOINLINE void AddPairs(int quarter, const Pairs& pairs, float* sums) {
  __m512 of[kProducts][4];
  HWY_UNROLL(3)
  for (int p = 0; p < kProducts; ++p) {
    TransposeFour(pairs[p], 4 * quarter, of[p]);
  }
  __m512 sum = _mm512_load_ps(sums);
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    HWY_UNROLL(3)
    for (int p = 0; p < kProducts; ++p) sum = _mm512_add_ps(sum, of[p][i]);
  }
  _mm512_store_ps(sums, sum);
}

// Chains of a block of k of group g, while what is left of the block before is
// added, by add_quarter().
template <int kRows, bool kAny, typename AddQuarter>
HWY_INLINE void ChainsOfGroup(const GemmDesc& desc, const GemmParams& params,
                              const WideX& wide, const Streams& streams,
                              int64_t g, int64_t k0, Pairs* pairs,
                              AddQuarter add_quarter) {
  constexpr int kColumns = 4 / kRows;
  const int64_t columns = streams.rows(g);
  if (columns < kTileRows) std::memset(pairs, 0, kRows * sizeof(Pairs));
  for (int64_t c = 0; c < columns; c += kColumns) {
    const uint16_t* w[kColumns];
    for (int64_t i = 0; i < kColumns; ++i) {
      w[i] = params.w.row<uint16_t>(streams.row(g, c + i)) + k0;
    }
    AddChains<kRows, kColumns, kAny>(w, wide.At(k0), wide.row_words(),
                                     desc.k - k0, pairs, c);
    // So that memory has something to do meanwhile.
    for (int64_t i = 0; i < kColumns; ++i) {
      for (int64_t line = 0; line < 4; ++line) {
        _mm_prefetch(reinterpret_cast<const char*>(w[i] + kBlock) +
                         kAheadBytes + line * kTileBytes,
                     _MM_HINT_T1);
      }
    }
    add_quarter();
  }
}

// y of groups [g0, g1) of rows of w with kRows rows of x.
template <int kRows, bool kAny>
void RunVectors(const GemmDesc& desc, const GemmParams& params,
                const WideX& wide, const Streams& streams, int64_t g0,
                int64_t g1) {
  constexpr int kQuarters = 4 * kRows;
  alignas(64) Pairs pairs[2][kRows];
  alignas(64) float sums[kRows][kTileRows] = {};
  const int64_t blocks = (desc.k + kBlock - 1) / kBlock;
  const int64_t first = g0 * blocks;
  std::optional<LikeTiles> like_tiles(std::in_place);
  for (int64_t i = first; i <= g1 * blocks; ++i) {
    const int64_t g = i / blocks;
    int quarter = i == first ? kQuarters : 0;
    const auto add_quarter = [&] {
      if (quarter == kQuarters) return;
      const int r = quarter / 4;
      AddPairs(quarter++ % 4, pairs[(i + 1) % 2][r], sums[r]);
    };
    if (g < g1) {
      ChainsOfGroup<kRows, kAny>(desc, params, wide, streams, g,
                                 i % blocks * kBlock, pairs[i % 2],
                                 add_quarter);
    }
    while (quarter < kQuarters) add_quarter();
    if (i % blocks != 0 || i == first) continue;
    like_tiles.reset();
    if (!kAny && !AllNumbers(sums[0], kRows * kTileRows)) {
      RunVectors<kRows, true>(desc, params, wide, streams, g - 1, g);
    } else {
      FinishGroup(params, streams, g - 1, kRows, sums[0]);
    }
    std::memset(sums, 0, sizeof(sums));
    like_tiles.emplace();
  }
}

}  // namespace
}  // namespace inlay::amx
HWY_POP_ATTRIBUTES

namespace inlay::amx {

int64_t VectorsWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  return WideX::Bytes(desc.k, std::min(max_rows, kMostByVectors));
}

void RunByVectors(const GemmDesc& desc, const GemmParams& params,
                  ThreadPool& pool) {
  const WideX wide(desc, params);
  const int64_t rows = params.x.rows();
  pool.ParallelFor(rows * wide.steps, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      wide.Pack(desc, params, i / wide.steps, i % wide.steps);
    }
  });
  const int64_t grain = kGrainProducts / (kTileRows * desc.k) + 1;
  const int64_t groups = (desc.n + kTileRows - 1) / kTileRows;
  pool.ParallelFor(groups, grain, [&](int64_t begin, int64_t end) {
    const Streams streams(begin * kTileRows, std::min(desc.n, end * kTileRows));
    const auto run = rows == 1 ? RunVectors<1, false> : RunVectors<2, false>;
    run(desc, params, wide, streams, 0, streams.count);
  });
}

}  // namespace inlay::amx
#endif  // __x86_64__
