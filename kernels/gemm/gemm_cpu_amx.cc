// gemm over bf16 weights on x86-64 with AMX, whose tiles multiply bf16 and add
// float32: 8,192 multiply-adds an instruction. Source of the tiles: amx.h.
//
// Exact in the factors: x is cut into three bf16 parts, whose 8 bits each make
// up its 24. A step of 32 elements of k adds to the sums, one product after
// another, low w, middle w and high w. A product of tiles is two chains of 16
// fused multiply-adds, of even and of odd elements, whose sum is added: of that
// an output sees its own row of x and of w alone. One order for every number of
// rows, so the same bits in every batch. The unit takes denormal numbers as
// zeros, which changes an output by less than 1e-33 times the weights'
// magnitudes. Sixteen times the rate of float32, a third of which is left.
//
// w is the left operand: 16 rows of 64 bytes, as it lies in its file. x is put
// into tiles (PackedX), 16 rows a group; rows that fill none are a call of
// their own. Four tiles of w, a band of 64 rows, at
// a time.
//   m <= 16: the parts of x stay in tiles, and tiles of w come from memory,
//   once
//     each. Bound by its bandwidth.
//   more: a panel of a band by kBlockSteps is put in order in L1 (tiles that
//     cross lines of the cache take three times as long), groups pass over it
//     from L2, and sums wait in memory for the next block of k, exactly as they
//     are.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/finish.h"
#include "kernels/gemm/gemm_parts.h"
#include "memory/device/thread_pool.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own intrinsics, which leave unused operands undefined.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
namespace inlay::amx {
namespace {

constexpr int64_t kStep = 32;                        // elements of k in a tile
constexpr int kParts = 3;                            // of x: low, middle, high
constexpr int64_t kGroup = kTileRows;                // rows of x
constexpr int64_t kWeightTiles = 4;                  // side by side
constexpr int64_t kBand = kWeightTiles * kTileRows;  // rows of w
constexpr int64_t kTileSize = kTileRows * kTileBytes;
constexpr int64_t kBlockSteps = 8;
// Steps that up to a group of rows asks for weights in advance.
constexpr int64_t kAhead = 8;
constexpr int64_t kPanelRuns = kBand * kBlockSteps;
// Of x at a time: what L2 holds, and the sums of so many fit a stack.
constexpr int64_t kBlockGroups = 8;
constexpr int64_t kTaskBands = 3;
constexpr int64_t kBandSums = kBand * kGroup;
// Less work than this costs less than waking a thread.
constexpr int64_t kGrainProducts = 256 << 10;

// x in the workspace: whole groups of rows, or one of fewer, each its steps one
// after another, each kParts tiles of `columns` rows of x.
struct PackedX {
  int64_t rows, groups, columns, steps;
  std::byte* data;

  PackedX(const GemmDesc& desc, const GemmParams& params)
      : rows(params.x.rows()),
        groups((rows + kGroup - 1) / kGroup),
        columns(std::min(rows, kGroup)),
        steps((desc.k + kStep - 1) / kStep),
        data(static_cast<std::byte*>(params.workspace)) {}
  int64_t tile_bytes() const { return kTileRows * columns * 4; }
  int64_t step_bytes() const { return kParts * tile_bytes(); }
  std::byte* At(int64_t group, int64_t step) const {
    return data + (group * steps + step) * step_bytes();
  }
};

inline __m512 HighHalf(__m512 v) {
  return _mm512_and_ps(
      v, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// The high halves of 32 floats, in their order.
inline __m512i JoinHighHalves(__m512 first, __m512 second) {
  alignas(64) static constexpr uint16_t kOdd[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(_mm512_castps_si512(first),
                                   _mm512_load_si512(kOdd),
                                   _mm512_castps_si512(second));
}

// x = parts[0] + parts[1] + parts[2], each in the high half of its lane. What
// is not finite is all in the last part.
inline void Split(__m512 x, __m512* parts) {
  constexpr int kNotFinite = 0x99, kNan = 0x81;
  const __mmask16 finite =
      static_cast<__mmask16>(~_mm512_fpclass_ps_mask(x, kNotFinite));
  const __mmask16 nan = _mm512_fpclass_ps_mask(x, kNan);
  const __m512 high = HighHalf(x);
  const __m512 rest = _mm512_maskz_sub_ps(finite, x, high);
  parts[1] = HighHalf(rest);
  parts[0] = _mm512_sub_ps(rest, parts[1]);
  // A NaN whose high half alone would be infinity.
  parts[2] = _mm512_mask_or_ps(
      high, nan, high, _mm512_castsi512_ps(_mm512_set1_epi32(0x00400000)));
}

// Step `step` of the rows of `group`.
inline void PackStep(const GemmDesc& desc, const GemmParams& params,
                     const PackedX& packed, int64_t group, int64_t step) {
  const int64_t first = group * kGroup;
  const int64_t k0 = step * kStep;
  const __mmask16 low = FirstLanes(desc.k - k0);
  const __mmask16 high = FirstLanes(desc.k - k0 - 16);
  __m512i parts[kParts][kGroup];
  for (int64_t r = 0; r < packed.columns; ++r) {
    __m512 a[kParts], b[kParts];
    const float* x = params.x.row<float>(first + r) + k0;
    Split(_mm512_maskz_loadu_ps(low, x), a);
    Split(_mm512_maskz_loadu_ps(high, x + 16), b);
    for (int p = 0; p < kParts; ++p) parts[p][r] = JoinHighHalves(a[p], b[p]);
  }
  std::byte* to = packed.At(group, step);
  const __mmask16 columns = FirstLanes(packed.columns);
  for (int p = 0; p < kParts; ++p, to += packed.tile_bytes()) {
    if (packed.columns == 1) {
      _mm512_storeu_si512(to, parts[p][0]);
      continue;
    }
    for (int64_t r = packed.columns; r < kGroup; ++r) {
      parts[p][r] = _mm512_setzero_si512();
    }
    Transpose16(parts[p]);
    for (int64_t i = 0; i < kTileRows; ++i) {
      _mm512_mask_storeu_epi32(to + i * packed.columns * 4, columns,
                               parts[p][i]);
    }
  }
}

// Where the tiles of a band of w are: step s, tile t begin at data + s step + t
// tile, rows `stride` apart.
struct WeightTiles {
  const std::byte* data;
  int64_t step, tile, stride;

  const std::byte* At(int64_t s) const { return data + s * step; }
};

// Steps [step, step + steps), at most kBlockSteps, of rows n0 to n0 + count
// into `panel`.
WeightTiles PackWeights(const GemmDesc& desc, const GemmParams& params,
                        int64_t n0, int64_t count, int64_t step, int64_t steps,
                        std::byte* panel) {
  const WeightTiles tiles = {panel, kTileSize, kBlockSteps * kTileSize,
                             kTileBytes};
  const int64_t k0 = step * kStep;
  for (int64_t r = 0; r < kBand; ++r) {
    std::byte* to =
        panel + r / kTileRows * tiles.tile + r % kTileRows * kTileBytes;
    const bool there = r < count;
    const auto* from = params.w.row<hwy::bfloat16_t>(n0 + (there ? r : 0)) + k0;
    const int64_t k = there ? desc.k - k0 : 0;
    const int64_t whole = std::min(steps, k / kStep);
    for (int64_t s = 0; s < whole; ++s) {
      _mm512_store_si512(to + s * kTileSize,
                         _mm512_loadu_si512(from + s * kStep));
    }
    // Beyond the last column and the last row: zeros.
    for (int64_t s = whole; s < steps; ++s) {
      const int64_t left = std::max<int64_t>(0, k - s * kStep);
      const auto mask = static_cast<__mmask32>((1u << left) - 1);
      _mm512_store_si512(to + s * kTileSize,
                         _mm512_maskz_loadu_epi16(mask, from + s * kStep));
    }
  }
  Written(panel);
  return tiles;
}

// A panel is kPanelRuns runs of 64 bytes: asks for the runs [begin, end) of the
// one at row n0 and step `step`.
inline void PrefetchPanel(const GemmDesc& desc, const GemmParams& params,
                          int64_t n0, int64_t step, int64_t begin,
                          int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t n = n0 + i / kBlockSteps;
    const int64_t k = (step + i % kBlockSteps) * kStep;
    if (n < desc.n && k < desc.k) {
      _mm_prefetch(params.w.row<char>(n) + 2 * k, _MM_HINT_T1);
    }
  }
}

// Tiles 0 to 3: sums of 16 rows of w each. The next `x_tiles`: x. Others: w.
inline void Configure(int64_t columns, int x_tiles) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.Set(tile, kTileRows,
               tile < 4 + x_tiles ? static_cast<int>(columns) * 4 : kTileBytes);
  }
  Written(&shapes);
  _tile_loadconfig(&shapes);
}

inline void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
inline void LoadSums(const float* sums) {
  _tile_loadd(0, sums, kTileBytes);
  _tile_loadd(1, sums + 256, kTileBytes);
  _tile_loadd(2, sums + 512, kTileBytes);
  _tile_loadd(3, sums + 768, kTileBytes);
}
inline void StoreSums(float* sums) {
  _tile_stored(0, sums, kTileBytes);
  _tile_stored(1, sums + 256, kTileBytes);
  _tile_stored(2, sums + 512, kTileBytes);
  _tile_stored(3, sums + 768, kTileBytes);
  Written(sums);
}

// Adds step `s` of w with that of a group at `x`. Each tile of w is loaded
// once.
inline void AddStep(const WeightTiles& tiles, int64_t s, const PackedX& packed,
                    const std::byte* x) {
  const int64_t x_stride = packed.columns * 4;
  _tile_loadd(4, x, x_stride);
  _tile_loadd(5, x + packed.tile_bytes(), x_stride);
  _tile_loadd(6, x + 2 * packed.tile_bytes(), x_stride);
  const std::byte* w = tiles.At(s);
  _tile_loadd(7, w, tiles.stride);
  _tile_dpbf16ps(0, 7, 4);
  _tile_dpbf16ps(0, 7, 5);
  _tile_dpbf16ps(0, 7, 6);
  _tile_loadd(7, w + tiles.tile, tiles.stride);
  _tile_dpbf16ps(1, 7, 4);
  _tile_dpbf16ps(1, 7, 5);
  _tile_dpbf16ps(1, 7, 6);
  _tile_loadd(7, w + 2 * tiles.tile, tiles.stride);
  _tile_dpbf16ps(2, 7, 4);
  _tile_dpbf16ps(2, 7, 5);
  _tile_dpbf16ps(2, 7, 6);
  _tile_loadd(7, w + 3 * tiles.tile, tiles.stride);
  _tile_dpbf16ps(3, 7, 4);
  _tile_dpbf16ps(3, 7, 5);
  _tile_dpbf16ps(3, 7, 6);
}

// y[first .. , n0 .. n0 + count) of a group from kBand x kGroup sums.
inline void Finish(const GemmParams& params, const PackedX& packed,
                   int64_t group, int64_t n0, int64_t count,
                   const float* sums) {
  const int64_t first = group * kGroup;
  const int64_t rows = std::min(kGroup, packed.rows - first);
  alignas(64) float out[kGroup][kBand];
  if (rows < 4) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < count; ++i) out[r][i] = sums[i * kGroup + r];
    }
  } else {
    for (int64_t t = 0; t < kBand; t += kTileRows) {
      __m512i v[kTileRows];
      for (int64_t i = 0; i < kTileRows; ++i) {
        v[i] = _mm512_loadu_si512(sums + (t + i) * kGroup);
      }
      Transpose16(v);
      for (int64_t r = 0; r < kGroup; ++r) {
        _mm512_store_si512(&out[r][t], v[r]);
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    FinishGemmRow(params, first + r, n0, count, out[r]);
  }
}

// Rows [n0, n0 + 16) of w, all whole steps, with up to a group: 16 streams from
// memory, of which it gives as much as it has; of a band's 64 it gave 20 %
// less.
inline void AddTile(const GemmParams& params, const PackedX& packed, int64_t n0,
                    float* sums) {
  const auto stride = static_cast<int64_t>(params.w.row_stride_bytes);
  const int64_t x_tile = packed.tile_bytes();
  const int64_t x_stride = packed.columns * 4;
  const char* w = params.w.row<char>(n0);
  const std::byte* x = packed.data;
  _tile_zero(0);
  for (int64_t step = 0; step < packed.steps; ++step) {
    // Behind a row's end: the next rows. What is not there does no harm.
    const int64_t at = step + kAhead;
    const char* ahead = at < packed.steps
                            ? w + kAhead * kTileBytes
                            : params.w.row<char>(n0 + kTileRows) +
                                  (at - packed.steps) * kTileBytes;
    for (int64_t r = 0; r < kTileRows; ++r) {
      _mm_prefetch(ahead + r * stride, _MM_HINT_T0);
    }
    _tile_loadd(7, w, stride);
    _tile_loadd(4, x, x_stride);
    _tile_dpbf16ps(0, 7, 4);
    _tile_loadd(5, x + x_tile, x_stride);
    _tile_dpbf16ps(0, 7, 5);
    _tile_loadd(6, x + 2 * x_tile, x_stride);
    _tile_dpbf16ps(0, 7, 6);
    w += kTileBytes;
    x += packed.step_bytes();
  }
  _tile_stored(0, sums, kTileBytes);
  Written(sums);
}

// Bands [begin, end) of w with all rows of x, a group of them at most.
void RunFew(const GemmDesc& desc, const GemmParams& params,
            const PackedX& packed, int64_t begin, int64_t end) {
  alignas(64) std::byte panel[kPanelRuns * kTileBytes];
  alignas(64) float sums[kBandSums];
  Configure(packed.columns, kParts);
  for (int64_t n0 = begin * kBand; n0 < std::min(desc.n, end * kBand);
       n0 += kBand) {
    const int64_t count = std::min(kBand, desc.n - n0);
    if (count == kBand && desc.k % kStep == 0) {
      for (int64_t t = 0; t < kWeightTiles; ++t) {
        AddTile(params, packed, n0 + t * kTileRows,
                sums + t * kTileRows * kGroup);
      }
      Finish(params, packed, 0, n0, count, sums);
      continue;
    }
    ZeroSums();
    for (int64_t step = 0; step < packed.steps; step += kBlockSteps) {
      const int64_t steps = std::min(kBlockSteps, packed.steps - step);
      const WeightTiles tiles =
          PackWeights(desc, params, n0, count, step, steps, panel);
      for (int64_t s = 0; s < steps; ++s) {
        AddStep(tiles, s, packed, packed.At(0, step + s));
      }
    }
    StoreSums(sums);
    Finish(params, packed, 0, n0, count, sums);
  }
  _tile_release();
}

// Bands [begin, end), at most kTaskBands, with groups [g0, g1), at most
// kBlockGroups.
void RunMany(const GemmDesc& desc, const GemmParams& params,
             const PackedX& packed, int64_t begin, int64_t end, int64_t g0,
             int64_t g1) {
  alignas(64) std::byte panel[kPanelRuns * kTileBytes];
  alignas(64) float sums[kTaskBands][kBlockGroups][kBandSums];
  Configure(packed.columns, kParts);
  for (int64_t step = 0; step < packed.steps; step += kBlockSteps) {
    const int64_t steps = std::min(kBlockSteps, packed.steps - step);
    for (int64_t band = begin; band < end; ++band) {
      const int64_t n0 = band * kBand;
      const int64_t count = std::min(kBand, desc.n - n0);
      const WeightTiles tiles =
          PackWeights(desc, params, n0, count, step, steps, panel);
      const bool last = band + 1 == end;
      for (int64_t group = g0; group < g1; ++group) {
        // Share of the next panel.
        PrefetchPanel(desc, params, last ? begin * kBand : n0 + kBand,
                      last ? step + kBlockSteps : step,
                      kPanelRuns * (group - g0) / (g1 - g0),
                      kPanelRuns * (group - g0 + 1) / (g1 - g0));
        float* of_group = sums[band - begin][group - g0];
        step == 0 ? ZeroSums() : LoadSums(of_group);
        for (int64_t s = 0; s < steps; ++s) {
          AddStep(tiles, s, packed, packed.At(group, step + s));
        }
        StoreSums(of_group);
        if (step + steps == packed.steps) {
          Finish(params, packed, group, n0, count, of_group);
        }
      }
    }
  }
  _tile_release();
}

// Whole groups of rows, or fewer than one.
void RunGroups(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  const PackedX packed(desc, params);
  pool.ParallelFor(
      packed.groups * packed.steps, 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          PackStep(desc, params, packed, i / packed.steps, i % packed.steps);
        }
        Written(packed.data);
      });
  const int64_t bands = (desc.n + kBand - 1) / kBand;
  if (packed.groups == 1) {
    pool.ParallelFor(bands, kGrainProducts / (kBand * desc.k) + 1,
                     [&](int64_t begin, int64_t end) {
                       RunFew(desc, params, packed, begin, end);
                     });
    return;
  }
  const int64_t blocks = (packed.groups + kBlockGroups - 1) / kBlockGroups;
  // Work for every thread, while weights serve as many groups as may be.
  const int64_t width = std::clamp<int64_t>(
      bands * blocks / (4 * pool.num_threads()), 1, kTaskBands);
  const int64_t columns = (bands + width - 1) / width;
  pool.ParallelFor(columns * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t g0 = i / columns * kBlockGroups;
      const int64_t band = i % columns * width;
      RunMany(desc, params, packed, band, std::min(bands, band + width), g0,
              std::min(packed.groups, g0 + kBlockGroups));
    }
  });
}

void Run(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  const int64_t rest = params.x.rows() % kGroup;
  const int64_t whole = params.x.rows() - rest;
  if (whole > 0) RunGroups(desc, RowsOfCall(params, 0, whole), pool);
  if (rest > 0) RunGroups(desc, RowsOfCall(params, whole, rest), pool);
}

}  // namespace
}  // namespace inlay::amx
HWY_POP_ATTRIBUTES

namespace inlay {

const char* GemmCpuAmxRefuses(const GemmDesc& desc) {
  if (desc.activation != DType::kF32 || desc.output != DType::kF32) {
    return "activations must be f32";
  }
  if (desc.weight != DType::kBF16) return "weights must be bf16";
  return amx::Refuses(amx::Products::kBF16);
}

size_t GemmCpuAmxWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  const int64_t steps = (desc.k + amx::kStep - 1) / amx::kStep;
  return static_cast<size_t>(max_rows * steps * amx::kParts * amx::kTileBytes);
}

absl::Status RunGemmCpuAmx(const GemmDesc& desc, const GemmParams& params,
                           Stream& stream) {
  amx::Run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
