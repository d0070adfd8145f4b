// Products of groups of rows of x with tiles of w, whose bf16 AMX multiplies:
// for gemm_cpu_amx_f16.cc. gemm_cpu_amx.cc has the same for bf16 by itself:
// through this it took a tenth longer (not explained). Only for code that is
// compiled for AVX-512 and AMX.
//
// w is the left operand, 16 rows of 64 bytes, x the right one, in tiles of the
// workspace (PackedX), 16 rows a group; rows that fill none are a call of their
// own. Of few rows the order's RunFew makes y; of more a panel of four tiles of
// w side by side, a band of 64 rows, by a block of k is put in order in the
// caches (tiles that cross lines take three times as long), groups pass over it
// from L2, and sums wait in the workspace for the next tiles, exactly as they
// are.
//
// An order of sums, `Order` below, says which elements of k make up a tile:
//   kParts: parts of x, each a tile of its own.
//   NumTiles(k): tiles that make up a row.
//   PackX(desc, params, packed, group, step): 32 elements of k of a group of x.
//   Panel: tiles [tile, tile + kTiles) of a band of w.
//     kPass: how many of them groups pass over at once, from L1.
//     Pack(desc, params, n0, count, tile, tiles), At(tile of the panel).
//   AddTiles(w, packed, x): the products of a band and a group with one tile of
//     k, sums in tiles 0 to 3; x from tile 4 on.
//   kBandOfFew: rows of w that a thread takes at least of few rows of x.
//   RunFew(desc, params, packed, begin, end): y of rows [begin, end) of w with
//     a group of x or less.
#ifndef INLAY_KERNELS_GEMM_AMX_GROUPS_H_
#define INLAY_KERNELS_GEMM_AMX_GROUPS_H_

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
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

// x in the workspace: whole groups of rows, or one of fewer, each its tiles of
// k one after another, each `parts` tiles of `columns` rows of x.
struct PackedX {
  int64_t rows, groups, columns, parts, tiles;
  std::byte* data;

  PackedX(const GemmParams& params, int64_t x_parts, int64_t k_tiles)
      : rows(params.x.rows()),
        groups((rows + kGroup - 1) / kGroup),
        columns(std::min(rows, kGroup)),
        parts(x_parts),
        tiles(k_tiles),
        data(static_cast<std::byte*>(params.workspace)) {}
  int64_t tile_bytes() const { return kTileRows * columns * 4; }
  int64_t row_bytes() const { return columns * 4; }
  int64_t bytes() const { return groups * tiles * parts * tile_bytes(); }
  std::byte* At(int64_t group, int64_t tile) const {
    return data + (group * tiles + tile) * parts * tile_bytes();
  }
};

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

// y[first .. , n0 .. n0 + count) of a group, count at most 16, from the sums
// of rows of w that lie `apart` floats apart: what FinishGemmRow does.
HWY_INLINE void FinishColumns(const GemmParams& params, const PackedX& packed,
                              int64_t group, int64_t n0, int64_t count,
                              const float* sums, int64_t apart) {
  const int64_t first = group * kGroup;
  const int64_t rows = std::min(kGroup, packed.rows - first);
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

// y[.. , n0 .. n0 + count) of a group from kBand x kGroup sums.
HWY_INLINE void Finish(const GemmParams& params, const PackedX& packed,
                       int64_t group, int64_t n0, int64_t count,
                       const float* sums) {
  for (int64_t t = 0; t < count; t += kTileRows) {
    FinishColumns(params, packed, group, n0 + t, count - t, sums + t * kGroup,
                  kGroup);
  }
}

// Asks for weights, up to kBand rows of w by `lines` lines of the cache, a
// share at every turn. (As a call of its own GCC would drop it.)
class AskAhead {
 public:
  // Of n0 to n0 + kBand and the tiles from `tile` on, in `turns` turns.
  AskAhead(const GemmDesc& desc, const GemmParams& params, int64_t n0,
           int64_t tile, int64_t lines, int64_t turns)
      : at_(params.w.row<char>(n0) + tile * kTileBytes),
        stride_(static_cast<int64_t>(params.w.row_stride_bytes)),
        lines_(lines),
        end_(std::min(kBand, desc.n - n0) * lines),
        share_((kBand * lines + turns - 1) / turns) {}

  HWY_INLINE void Turn() {
    const int64_t end = std::min(end_, next_ + share_);
    for (; next_ < end; ++next_) {
      _mm_prefetch(at_ + next_ / lines_ * stride_ + next_ % lines_ * kTileBytes,
                   _MM_HINT_T1);
    }
  }

 private:
  const char* const at_;
  const int64_t stride_, lines_, end_, share_;
  int64_t next_ = 0;
};

// Bands [begin, end) with groups [g0, g1). sums: kBandSums a band and group.
template <class Order>
void RunMany(const GemmDesc& desc, const GemmParams& params,
             const PackedX& packed, int64_t begin, int64_t end, int64_t g0,
             int64_t g1, float* sums) {
  typename Order::Panel panel;
  Configure(packed.columns, Order::kParts);
  for (int64_t tile = 0; tile < packed.tiles; tile += panel.kTiles) {
    const int64_t tiles = std::min(panel.kTiles, packed.tiles - tile);
    for (int64_t band = begin; band < end; ++band) {
      const int64_t n0 = band * kBand;
      const int64_t count = std::min(kBand, desc.n - n0);
      panel.Pack(desc, params, n0, count, tile, tiles);
      const bool last = band + 1 == end;
      AskAhead next(desc, params, (last ? begin : band + 1) * kBand,
                    last ? tile + panel.kTiles : tile, panel.kTiles,
                    (g1 - g0) * panel.kTiles);
      for (int64_t t0 = 0; t0 < tiles; t0 += panel.kPass) {
        const int64_t t_end = std::min(tiles, t0 + panel.kPass);
        float* at = sums + (band - begin) * (g1 - g0) * kBandSums;
        for (int64_t group = g0; group < g1; ++group, at += kBandSums) {
          tile + t0 == 0 ? ZeroSums() : LoadSums(at);
          for (int64_t t = t0; t < t_end; ++t) {
            next.Turn();
            Order::AddTiles(panel.At(t), packed, packed.At(group, tile + t));
          }
          StoreSums(at);
          if (tile + t_end == packed.tiles) {
            Finish(params, packed, group, n0, count, at);
          }
        }
      }
    }
  }
  _tile_release();
}

inline int64_t Bands(const GemmDesc& desc) {
  return (desc.n + kBand - 1) / kBand;
}
// Whose sums are in the workspace at once.
inline int64_t BandsAtOnce(const GemmDesc& desc, int64_t groups) {
  return std::clamp<int64_t>(kMostSums / groups, 1, Bands(desc));
}

// Whole groups of rows, more than one.
template <class Order>
void RunGroups(const GemmDesc& desc, const GemmParams& params,
               const PackedX& packed, ThreadPool& pool) {
  auto* sums = reinterpret_cast<float*>(packed.data + packed.bytes());
  const int64_t bands = Bands(desc);
  const int64_t blocks = (packed.groups + kBlockGroups - 1) / kBlockGroups;
  const int64_t most = BandsAtOnce(desc, packed.groups);
  for (int64_t first = 0; first < bands; first += most) {
    const int64_t count = std::min(most, bands - first);
    // Work for every thread, while weights and x serve as much as may be.
    const int64_t width = std::clamp<int64_t>(
        count * blocks / (2 * pool.num_threads()), 1, kTaskBands);
    const int64_t columns = (count + width - 1) / width;
    pool.ParallelFor(columns * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t g0 = i / columns * kBlockGroups;
        const int64_t g1 = std::min(packed.groups, g0 + kBlockGroups);
        const int64_t band = i % columns * width;
        RunMany<Order>(desc, params, packed, first + band,
                       first + std::min(count, band + width), g0, g1,
                       sums + (g0 * count + band * (g1 - g0)) * kBandSums);
      }
    });
  }
}

// Whole groups of rows, or fewer than one.
template <class Order>
void RunTiles(const GemmDesc& desc, const GemmParams& params,
              ThreadPool& pool) {
  const PackedX packed(params, Order::kParts, Order::NumTiles(desc.k));
  // A tile has as many elements of k as a step, if not the same ones.
  pool.ParallelFor(packed.groups * packed.tiles, 64,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       Order::PackX(desc, params, packed, i / packed.tiles,
                                    i % packed.tiles);
                     }
                     Written(packed.data);
                   });
  if (packed.groups > 1) return RunGroups<Order>(desc, params, packed, pool);
  constexpr int64_t kRows = Order::kBandOfFew;
  const auto grain = kGrainProducts / (kRows * desc.k) + 1;
  pool.ParallelFor((desc.n + kRows - 1) / kRows, grain,
                   [&](int64_t begin, int64_t end) {
                     Order::RunFew(desc, params, packed, begin * kRows,
                                   std::min(desc.n, end * kRows));
                   });
}

// What RunTiles takes for up to max_rows rows.
template <class Order>
int64_t WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  int64_t bytes =
      max_rows * Order::NumTiles(desc.k) * Order::kParts * kTileBytes;
  // Sums of as many groups, or of fewer, which have more bands at once.
  const int64_t groups = max_rows / kGroup;
  if (groups > 1) {
    bytes += std::min(groups * Bands(desc), std::max(kMostSums, groups)) *
             kBandSums * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

}  // namespace inlay::amx
HWY_POP_ATTRIBUTES
#endif  // __x86_64__

#endif  // INLAY_KERNELS_GEMM_AMX_GROUPS_H_
