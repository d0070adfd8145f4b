// gemm over bf16 and f16 weights on x86-64 with AMX, whose tiles multiply bf16
// and add float32: 8,192 multiply-adds an instruction. Source of the tiles:
// amx.h. Here: what is particular to bf16, and the row of both.
// gemm_cpu_amx_f16.cc: f16.
//
// Exact in the factors: x is cut into three bf16 parts, whose 8 bits each make
// up its 24. A step of 32 elements of k adds to the sums, one product after
// another, low, middle and high x. A product of tiles is two chains of 16 fused
// multiply-adds, of even and of odd elements, whose sum is added: of that an
// output sees its own row of x and of w alone. One order for every number of
// rows, so the same bits in every batch. The unit takes denormal numbers as
// zeros, which changes an output by less than 1e-33 times the weights'
// magnitudes. Sixteen times the rate of float32, of which this has a third.
//
// Infinities: no part of a finite x but 0 is 0, so that an infinite weight
// gives infinity; x that is not finite is all in its low part. Infinity times
// infinity gives NaN.
//
// w is the left operand: 16 rows of 64 bytes, of bf16 as it lies in its file. x
// is put into tiles (PackedX), 16 rows a group; rows that fill none are a call
// of their own. Four tiles of w, a band of 64 rows, at a time.
//   m <= 16: a tile of w after the other, once each, from memory, whose
//     bandwidth is the bound. Its 16 rows lie apart, so that a thread reads 16
//     long streams.
//   more: a panel of a band by a block of k is put in order in L1 (tiles that
//     cross lines of the cache take three times as long), groups pass over it
//     from L2, and sums wait in the workspace for the next block of k, exactly
//     as they are.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_bands.h"
#include "kernels/gemm/amx_parts.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/gemm_parts.h"
#include "memory/device/thread_pool.h"

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
namespace inlay::amx {
namespace {

constexpr int64_t kParts = 3;        // of x: low, middle, high
constexpr int64_t kPanelTiles = 32;  // of w: two thirds of L1
// Steps that up to a group of rows asks for weights in advance.
constexpr int64_t kAhead = 8;
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
  int64_t bytes() const { return groups * steps * step_bytes(); }
  std::byte* At(int64_t group, int64_t step) const {
    return data + (group * steps + step) * step_bytes();
  }
};

// Step `step` of the rows of `group`.
void PackStep(const GemmDesc& desc, const GemmParams& params,
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
    for (int p = 0; p < kParts; ++p) {
      parts[p][r] = JoinInOrder(a[p], b[p]);
    }
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

// A panel in L1: the tiles of a step and 16 rows of w, part by part, then those
// of the next step; behind kSteps steps the next 16 rows.
struct Panel {
  static constexpr int64_t kStepBytes = kTileSize;
  static constexpr int64_t kSteps = kPanelTiles / kWeightTiles;
  static constexpr int64_t kRowsBytes = kSteps * kStepBytes;
  alignas(64) std::byte data[kWeightTiles * kRowsBytes];

  const std::byte* At(int64_t step) const { return data + step * kStepBytes; }

  // Steps [step, step + steps), at most kSteps, of rows n0 to n0 + count.
  void Pack(const GemmDesc& desc, const GemmParams& params, int64_t n0,
            int64_t count, int64_t step, int64_t steps) {
    const int64_t k0 = step * kStep;
    for (int64_t r = 0; r < kBand; ++r) {
      std::byte* to =
          data + r / kTileRows * kRowsBytes + r % kTileRows * kTileBytes;
      const bool there = r < count;
      const auto* from = params.w.row<uint16_t>(n0 + (there ? r : 0)) + k0;
      const int64_t k = there ? desc.k - k0 : 0;
      const int64_t whole = std::min(steps, k / kStep);
      for (int64_t s = 0; s < whole; ++s) {
        _mm512_store_si512(to + s * kStepBytes,
                           _mm512_loadu_si512(from + s * kStep));
      }
      // Beyond the last column and the last row: zeros.
      for (int64_t s = whole; s < steps; ++s) {
        alignas(64) uint16_t last[kStep] = {};
        const int64_t left = k - s * kStep;
        if (left > 0) std::copy_n(from + s * kStep, left, last);
        _mm512_store_si512(to + s * kStepBytes, _mm512_load_si512(last));
      }
    }
    Written(data);
  }
};

// Adds, to the sums in tiles 0 to 3, the tiles of a step at `w`, 16 rows of w
// after 16 of them, with that of a group at `x`. Each tile is loaded once.
inline void AddStep(const std::byte* w, const PackedX& packed,
                    const std::byte* x) {
  constexpr int64_t kNext = Panel::kRowsBytes;
  const int64_t x_stride = packed.columns * 4;
  _tile_loadd(4, x, x_stride);
  _tile_loadd(5, x + packed.tile_bytes(), x_stride);
  _tile_loadd(6, x + 2 * packed.tile_bytes(), x_stride);
  _tile_loadd(7, w, kTileBytes);
  _tile_dpbf16ps(0, 7, 4);
  _tile_dpbf16ps(0, 7, 5);
  _tile_dpbf16ps(0, 7, 6);
  _tile_loadd(7, w + kNext, kTileBytes);
  _tile_dpbf16ps(1, 7, 4);
  _tile_dpbf16ps(1, 7, 5);
  _tile_dpbf16ps(1, 7, 6);
  _tile_loadd(7, w + 2 * kNext, kTileBytes);
  _tile_dpbf16ps(2, 7, 4);
  _tile_dpbf16ps(2, 7, 5);
  _tile_dpbf16ps(2, 7, 6);
  _tile_loadd(7, w + 3 * kNext, kTileBytes);
  _tile_dpbf16ps(3, 7, 4);
  _tile_dpbf16ps(3, 7, 5);
  _tile_dpbf16ps(3, 7, 6);
}

// Asks for a step of the rows n, n + apart, .. of w kAhead steps from `step`
// on: behind a row's end the next row. What is not there does no harm. (As a
// call of its own GCC would drop it.)
HWY_INLINE void AskAhead(const GemmParams& params, const PackedX& packed,
                         int64_t n, int64_t apart, int64_t step) {
  const int64_t at = step + kAhead;
  const char* ahead =
      at < packed.steps
          ? params.w.row<char>(n) + at * kTileBytes
          : params.w.row<char>(n + 1) + (at - packed.steps) * kTileBytes;
  const int64_t stride =
      apart * static_cast<int64_t>(params.w.row_stride_bytes);
  for (int64_t r = 0; r < kTileRows; ++r) {
    _mm_prefetch(ahead + r * stride, _MM_HINT_T0);
  }
}

// The sums of a tile, rows n, n + apart, .. of w, all whole steps, with up to a
// group.
inline void AddTile(const GemmParams& params, const PackedX& packed, int64_t n,
                    int64_t apart, float* sums) {
  const int64_t stride =
      apart * static_cast<int64_t>(params.w.row_stride_bytes);
  const int64_t x_tile = packed.tile_bytes();
  const int64_t x_stride = packed.columns * 4;
  const auto* w = params.w.row<std::byte>(n);
  const std::byte* x = packed.data;
  _tile_zero(0);
  for (int64_t step = 0; step < packed.steps; ++step) {
    AskAhead(params, packed, n, apart, step);
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

// Rows [begin, end) of w, all whole steps, with up to a group, as 16 streams of
// consecutive rows, of which memory gives as much as it has: of 16 rows side by
// side it gave 5 % less, of a band's 64 20 %. Returns where rows that fill no
// stream begin.
int64_t RunStreams(const GemmParams& params, const PackedX& packed,
                   int64_t begin, int64_t end) {
  alignas(64) float sums[kTileRows * kTileSums];
  const int64_t apart = (end - begin) / kTileRows;
  for (int64_t i = 0; i < apart; i += kTileRows) {
    const int64_t count = std::min<int64_t>(kTileRows, apart - i);
    for (int64_t t = 0; t < count; ++t) {
      AddTile(params, packed, begin + i + t, apart, sums + t * kTileSums);
    }
    for (int64_t r = 0; r < kTileRows; ++r) {
      FinishColumns(params, packed.rows, 0, begin + r * apart + i, count,
                    sums + r * kGroup, kTileSums);
    }
  }
  return begin + apart * kTileRows;
}

// Bands [begin, end) of w with all rows of x, a group of them at most.
void RunFew(const GemmDesc& desc, const GemmParams& params,
            const PackedX& packed, int64_t begin, int64_t end) {
  Panel panel;
  alignas(64) float sums[kBandSums];
  Configure(packed.columns, kParts);
  const int64_t n_end = std::min(desc.n, end * kBand);
  int64_t n0 = begin * kBand;
  if (desc.k % kStep == 0) n0 = RunStreams(params, packed, n0, n_end);
  for (; n0 < n_end; n0 += kBand) {
    const int64_t count = std::min(kBand, n_end - n0);
    ZeroSums();
    for (int64_t step = 0; step < packed.steps; step += panel.kSteps) {
      const int64_t steps = std::min(panel.kSteps, packed.steps - step);
      panel.Pack(desc, params, n0, count, step, steps);
      for (int64_t s = 0; s < steps; ++s) {
        AddStep(panel.At(s), packed, packed.At(0, step + s));
      }
    }
    StoreSums(sums);
    Finish(params, packed.rows, 0, n0, count, sums);
  }
  _tile_release();
}

// Bands [begin, end) with groups [g0, g1). sums: kBandSums a band and group.
void RunMany(const GemmDesc& desc, const GemmParams& params,
             const PackedX& packed, int64_t begin, int64_t end, int64_t g0,
             int64_t g1, float* sums) {
  Panel panel;
  Configure(packed.columns, kParts);
  for (int64_t step = 0; step < packed.steps; step += panel.kSteps) {
    const int64_t steps = std::min(panel.kSteps, packed.steps - step);
    float* at = sums;
    for (int64_t band = begin; band < end; ++band) {
      const int64_t n0 = band * kBand;
      const int64_t count = std::min(kBand, desc.n - n0);
      panel.Pack(desc, params, n0, count, step, steps);
      for (int64_t group = g0; group < g1; ++group, at += kBandSums) {
        step == 0 ? ZeroSums() : LoadSums(at);
        for (int64_t s = 0; s < steps; ++s) {
          AddStep(panel.At(s), packed, packed.At(group, step + s));
        }
        StoreSums(at);
        if (step + steps == packed.steps) {
          Finish(params, packed.rows, group, n0, count, at);
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
  if (packed.groups == 1) {
    pool.ParallelFor(Bands(desc), kGrainProducts / (kBand * desc.k) + 1,
                     [&](int64_t begin, int64_t end) {
                       RunFew(desc, params, packed, begin, end);
                     });
    return;
  }
  auto* sums = reinterpret_cast<float*>(packed.data + packed.bytes());
  ForEachBlock(
      desc, packed.groups, sums, pool,
      [&](int64_t begin, int64_t end, int64_t g0, int64_t g1, float* at) {
        RunMany(desc, params, packed, begin, end, g0, g1, at);
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

// gemm_cpu_amx_f16.cc
size_t GemmCpuAmxF16WorkspaceBytes(const GemmDesc& desc, int64_t max_rows);
void RunGemmCpuAmxF16(const GemmDesc& desc, const GemmParams& params,
                      ThreadPool& pool);

const char* GemmCpuAmxRefuses(const GemmDesc& desc) {
  if (desc.activation != DType::kF32 || desc.output != DType::kF32) {
    return "activations must be f32";
  }
  if (desc.weight != DType::kBF16 && desc.weight != DType::kF16) {
    return "weights must be bf16 or f16";
  }
  return amx::Refuses(amx::Products::kBF16);
}

size_t GemmCpuAmxWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  if (desc.weight == DType::kF16) {
    return GemmCpuAmxF16WorkspaceBytes(desc, max_rows);
  }
  const int64_t steps = (desc.k + amx::kStep - 1) / amx::kStep;
  return static_cast<size_t>(max_rows * steps * amx::kParts * amx::kTileBytes +
                             amx::SumsBytes(desc, max_rows));
}

absl::Status RunGemmCpuAmx(const GemmDesc& desc, const GemmParams& params,
                           Stream& stream) {
  ThreadPool& pool = *stream.thread_pool();
  if (desc.weight == DType::kF16) {
    RunGemmCpuAmxF16(desc, params, pool);
  } else {
    amx::Run(desc, params, pool);
  }
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
