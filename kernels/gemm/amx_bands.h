// What gemm_cpu_amx.cc and gemm_cpu_amx_f16.cc share: sizes of their tasks,
// sums in tiles and in the workspace, and the way from those to y. Only for
// code that is compiled for AVX-512 and AMX.
//
// w is the left operand, 16 rows of 64 bytes, x the right one, 16 rows a group.
// Four tiles of w side by side are a band of 64 rows; groups pass over its
// panels, and sums wait in the workspace, exactly as they are. Panels, and what
// passes over them, are each file's own.
#ifndef INLAY_KERNELS_GEMM_AMX_BANDS_H_
#define INLAY_KERNELS_GEMM_AMX_BANDS_H_

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_parts.h"
#include "memory/device/thread_pool.h"

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
namespace inlay::amx {

inline constexpr int64_t kStep = 32;          // elements of k in a tile's row
inline constexpr int64_t kGroup = kTileRows;  // rows of x
inline constexpr int64_t kWeightTiles = 4;    // side by side
inline constexpr int64_t kBand = kWeightTiles * kTileRows;  // rows of w
inline constexpr int64_t kTileSize = kTileRows * kTileBytes;
// A block of k of so many groups and bands, their sums beside it, fill L2: its
// neighbours on the way there, x once for every kTaskBands and w once for every
// kBlockGroups.
inline constexpr int64_t kBlockGroups = 16;
inline constexpr int64_t kTaskBands = 8;
inline constexpr int64_t kTileSums = kTileRows * kGroup;
inline constexpr int64_t kBandSums = kWeightTiles * kTileSums;
// Groups times bands whose sums are in the workspace at once; a band at least.
inline constexpr int64_t kMostSums = 2048;
// Less work than this costs less than waking a thread.
inline constexpr int64_t kGrainProducts = 256 << 10;

// Tiles 0 to 3: sums of 16 rows of w each. From 4 on: parts of x. Then w.
inline void Configure(int64_t columns, int64_t parts) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.Set(tile, kTileRows,
               tile < 4 + parts ? static_cast<int>(columns) * 4 : kTileBytes);
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

// y[first .. , n0 .. n0 + count) of a group of num_rows rows, count at most 16,
// from the sums of rows of w that lie `apart` floats apart: what FinishGemmRow
// does.
HWY_INLINE void FinishColumns(const GemmParams& params, int64_t num_rows,
                              int64_t group, int64_t n0, int64_t count,
                              const float* sums, int64_t apart) {
  const int64_t first = group * kGroup;
  const int64_t rows = std::min(kGroup, num_rows - first);
  const __mmask16 mask = FirstLanes(count);
  __m512i v[kTileRows];
  for (int64_t i = 0; i < kTileRows; ++i) {
    v[i] = _mm512_loadu_si512(sums + i * apart);
  }
  Transpose16(v);
  for (int64_t r = 0; r < rows; ++r) {
    __m512 value = _mm512_castsi512_ps(v[r]);
    if (params.bias != nullptr) {
      value =
          _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, params.bias + n0));
    }
    if (!params.residual.empty()) {
      value = _mm512_add_ps(
          value, _mm512_maskz_loadu_ps(
                     mask, params.residual.row<float>(first + r) + n0));
    }
    _mm512_mask_storeu_ps(params.y.row<float>(first + r) + n0, mask, value);
  }
}

// y[.. , n0 .. n0 + count) of a group from kBand x kGroup sums. A call: inlined
// into the pass over groups it makes that 3 % slower.
HWY_NOINLINE inline void Finish(const GemmParams& params, int64_t num_rows,
                                int64_t group, int64_t n0, int64_t count,
                                const float* sums) {
  for (int64_t t = 0; t < count; t += kTileRows) {
    FinishColumns(params, num_rows, group, n0 + t, count - t, sums + t * kGroup,
                  kGroup);
  }
}

inline int64_t Bands(const GemmDesc& desc) {
  return (desc.n + kBand - 1) / kBand;
}
// Whose sums are in the workspace at once.
inline int64_t BandsAtOnce(const GemmDesc& desc, int64_t groups) {
  return std::clamp<int64_t>(kMostSums / groups, 1, Bands(desc));
}

// Calls run(band, end, g0, g1, sums) for blocks of bands [band, end) and groups
// [g0, g1) that cover all, on all threads; kBandSums of `sums` are for each
// band and group.
template <typename Run>
void ForEachBlock(const GemmDesc& desc, int64_t groups, float* sums,
                  ThreadPool& pool, const Run& run) {
  const int64_t bands = Bands(desc);
  const int64_t blocks = (groups + kBlockGroups - 1) / kBlockGroups;
  const int64_t most = BandsAtOnce(desc, groups);
  for (int64_t first = 0; first < bands; first += most) {
    const int64_t count = std::min(most, bands - first);
    // Work for every thread, while weights and x serve as much as may be.
    const int64_t width = std::clamp<int64_t>(
        count * blocks / (2 * pool.num_threads()), 1, kTaskBands);
    const int64_t columns = (count + width - 1) / width;
    pool.ParallelFor(columns * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t g0 = i / columns * kBlockGroups;
        const int64_t g1 = std::min(groups, g0 + kBlockGroups);
        const int64_t band = i % columns * width;
        run(first + band, first + std::min(count, band + width), g0, g1,
            sums + (g0 * count + band * (g1 - g0)) * kBandSums);
      }
    });
  }
}

// Of the sums of up to max_rows rows of x: of as many groups, or of fewer,
// which have more bands at once.
inline int64_t SumsBytes(const GemmDesc& desc, int64_t max_rows) {
  const int64_t groups = max_rows / kGroup;
  if (groups <= 1) return 0;
  return std::min(groups * Bands(desc), std::max(kMostSums, groups)) *
         kBandSums * static_cast<int64_t>(sizeof(float));
}

}  // namespace inlay::amx
HWY_POP_ATTRIBUTES
#endif  // __x86_64__

#endif  // INLAY_KERNELS_GEMM_AMX_BANDS_H_
