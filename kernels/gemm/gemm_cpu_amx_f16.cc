// gemm over f16 weights on x86-64 with AMX: products of tiles of bf16 for many
// rows of x, and the same sums, to the bit, by vectors for few, which have no
// time to put weights in tiles. Source of the tiles: amx.h.
//
// The 11 bits of a weight are cut into high (8) and low (3), exactly; x into
// high, the nearest bf16, and low, the bf16 nearest to what is left. Low times
// low is left out: at most 7/1024 times 2^-8 of a product; x loses at most
// 2^-17. Together less than 9 x 2^-18, or 2^-14, of a product; 2^-18 on
// average in squares, where x rounded to f16 would lose 2^-12.
//
// The order of sums: k is cut into blocks of 512, a block into 16 steps of 32
// elements. Element i of each step is in chain i, which is 16 fused
// multiply-adds from +0 on, in ascending order of steps. Chains l and 16 + l
// are added, and that to the sum: for l from 0 to 15 of low w times high x,
// high times low and high times high. Numbers are rounded to the nearest, and
// denormal ones are zeros, before and after every operation: an output changes
// by less than 1e-33 times the weights' magnitudes.
//
//   That is what TDPBF16PS does with a tile of w whose rows have pairs of
//   elements l and 16 + l of the 16 steps. A block of k and 16 rows of w are 16
//   tiles (of each part), for which elements are transposed.
//   By vectors, chains 0 to 15 are the lanes of one accumulator, 16 to 31 of
//   another, along rows of w as they lie in the file. Steps beyond a row's end
//   are zeros: one of them does what all do, which make -0 (of an underflow)
//   +0.
//
// Infinities: an infinite weight is the largest number and low infinity, which
// meets high x alone, which is 0 for no x but 0 (and denormal ones); x that is
// not finite is so in its low part, which meets high w alone. Vectors take no
// care of infinite weights, which give NaN, until a sum is NaN.
//
//   m <= kMostByVectors: gemm_cpu_amx_f16_few.cc.
//   m <= 16: a row of w is transposed while one of the tiles before is
//     multiplied.
//   more: a panel of a band by a block of k is put in order in the caches
//   (tiles
//     that cross lines take three times as long), groups pass over it from L2,
//     and sums wait in the workspace for the next one (amx_bands.h).
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>

#include "kernels/gemm/amx.h"
#include "kernels/gemm/amx_bands.h"
#include "kernels/gemm/amx_f16.h"
#include "kernels/gemm/amx_parts.h"
#include "kernels/gemm/avx512.h"
#include "kernels/gemm/gemm_parts.h"
#include "memory/device/thread_pool.h"

HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
namespace inlay::amx {
namespace {

constexpr int64_t kParts = 2;  // of x: low, high
constexpr int64_t kBlockTiles = kBlock / kStep;
// From a tile's low part, its high part behind it, to the next tile's: not a
// power of two, as the rows of a block's tiles, which are written together, are
// not to share sets of L1.
constexpr int64_t kNextTile = 2 * kTileSize + 2 * kTileBytes;
constexpr int64_t kBlockBytes = kBlockTiles * kNextTile;  // of 16 rows of w

// That a row is: those of whole blocks.
int64_t NumTiles(int64_t k) { return (k + kBlock - 1) / kBlock * kBlockTiles; }

// x in the workspace: whole groups of rows, or one of fewer, each its tiles of
// k one after another, each kParts tiles of `columns` rows of x.
struct PackedX {
  int64_t rows, groups, columns, tiles;
  std::byte* data;

  PackedX(const GemmDesc& desc, const GemmParams& params)
      : rows(params.x.rows()),
        groups((rows + kGroup - 1) / kGroup),
        columns(std::min(rows, kGroup)),
        tiles(NumTiles(desc.k)),
        data(static_cast<std::byte*>(params.workspace)) {}
  int64_t tile_bytes() const { return kTileRows * columns * 4; }
  int64_t row_bytes() const { return columns * 4; }
  int64_t bytes() const { return groups * tiles * kParts * tile_bytes(); }
  std::byte* At(int64_t group, int64_t tile) const {
    return data + (group * tiles + tile) * kParts * tile_bytes();
  }
};

// Elements of 16 steps become pairs of chains: v[l] has element l of all steps
// in its first half and element 16 + l in its second.
HWY_INLINE void TransposeSteps(__m512i* v) {
  __m512i t[16];
  HWY_UNROLL(8)
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi16(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi16(v[i], v[i + 1]);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < 16; i += 4) {
    HWY_UNROLL(2)
    for (int j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi32(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi32(t[i + j], t[i + j + 2]);
    }
  }
  HWY_UNROLL(2)
  for (int i = 0; i < 16; i += 8) {
    HWY_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      t[i + 2 * j] = _mm512_unpacklo_epi64(v[i + j], v[i + j + 4]);
      t[i + 2 * j + 1] = _mm512_unpackhi_epi64(v[i + j], v[i + j + 4]);
    }
  }
  // t[8 i + l] has in block b element 8 b + l of steps 8 i to 8 i + 7.
  const __m512i even = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
  const __m512i odd = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
  HWY_UNROLL(8)
  for (int l = 0; l < 8; ++l) {
    v[l] = _mm512_permutex2var_epi64(t[l], even, t[l + 8]);
    v[l + 8] = _mm512_permutex2var_epi64(t[l], odd, t[l + 8]);
  }
}

// A row of a block's 16 tiles from the `count` elements at w; what is missing
// of kBlock is zeros. Asks for a block at `near`, which may be anywhere, and
// the row's next one, bit by bit, as memory gives them.
HWY_INLINE void PackRow(const uint16_t* w, int64_t count, const uint16_t* near,
                        std::byte* to) {
  __m512i v[16];
  if (count >= kBlock) {
    HWY_UNROLL(16)
    for (int64_t s = 0; s < 16; ++s) {
      v[s] = _mm512_loadu_si512(w + s * kStep);
    }
  } else {
    for (int64_t s = 0; s < 16; ++s) {
      const int64_t left = std::clamp<int64_t>(count - s * kStep, 0, kStep);
      const auto mask = static_cast<__mmask32>((uint64_t{1} << left) - 1);
      v[s] = _mm512_maskz_loadu_epi16(mask, w + s * kStep);
    }
  }
  TransposeSteps(v);
  alignas(64) uint16_t chains[16][32];
  HWY_UNROLL(16)
  for (int l = 0; l < 16; ++l) _mm512_store_si512(chains[l], v[l]);
  // Widened from memory, which takes half the instructions.
  Written(chains);
  HWY_UNROLL(4)
  for (int l = 0; l < 16; ++l, to += kNextTile) {
    _mm_prefetch(near + l * kStep, _MM_HINT_T0);
    _mm_prefetch(w + kBlock + l * kStep, _MM_HINT_T1);
    __m512 low[2], high[2];
    SplitWeights<true>(Widen(chains[l]), low[0], high[0]);
    SplitWeights<true>(Widen(chains[l] + 16), low[1], high[1]);
    _mm512_store_si512(to, JoinInPairs(low[0], low[1]));
    _mm512_store_si512(to + kTileSize, JoinInPairs(high[0], high[1]));
  }
}

// A band of w by a block of k: 16 rows' tiles, then the next ones'.
struct Panel {
  static constexpr int64_t kTiles = kBlockTiles;
  static constexpr int64_t kPass = 4;  // 32 KB: two thirds of L1
  alignas(64) std::byte data[kWeightTiles * kBlockBytes];

  const std::byte* At(int64_t tile) const { return data + tile * kNextTile; }

  void Pack(const GemmDesc& desc, const GemmParams& params, int64_t n0,
            int64_t count, int64_t tile, int64_t) {
    const int64_t k0 = tile * kStep;
    for (int64_t r = 0; r < kBand; ++r) {
      const bool there = r < count;
      PackRow(params.w.row<uint16_t>(n0 + (there ? r : 0)) + k0,
              there ? desc.k - k0 : 0,
              params.w.row<uint16_t>(n0 + std::min(r + 1, count - 1)) + k0,
              data + r / kTileRows * kBlockBytes + r % kTileRows * kTileBytes);
    }
    Written(data);
  }
};

// A step is a row of each of its block's tiles.
void PackX(const GemmDesc& desc, const GemmParams& params,
           const PackedX& packed, int64_t group, int64_t step) {
  const int64_t first = group * kGroup;
  const int64_t rows = std::min(kGroup, packed.rows - first);
  const int64_t k0 = step * kStep;
  const __mmask16 even = FirstLanes(desc.k - k0);
  const __mmask16 odd = FirstLanes(desc.k - k0 - 16);
  __m512i parts[kParts][kGroup];
  for (int64_t r = 0; r < kGroup; ++r) {
    __m512 low[2], high[2];
    const float* x = params.x.row<float>(first + std::min(r, rows - 1)) + k0;
    SplitInTwo(_mm512_maskz_loadu_ps(even, x), low[0], high[0]);
    SplitInTwo(_mm512_maskz_loadu_ps(odd, x + 16), low[1], high[1]);
    parts[0][r] = JoinInPairs(low[0], low[1]);
    parts[1][r] = JoinInPairs(high[0], high[1]);
  }
  const __mmask16 columns = FirstLanes(packed.columns);
  const int64_t block = step / kBlockTiles * kBlockTiles;
  std::byte* to =
      packed.At(group, block) + step % kBlockTiles * packed.row_bytes();
  for (int p = 0; p < kParts; ++p, to += packed.tile_bytes()) {
    Transpose16(parts[p]);
    for (int64_t l = 0; l < kBlockTiles; ++l) {
      _mm512_mask_storeu_epi32(to + l * kParts * packed.tile_bytes(), columns,
                               parts[p][l]);
    }
  }
}

// Each tile is loaded once.
HWY_INLINE void AddTiles(const std::byte* w, const PackedX& packed,
                         const std::byte* x) {
  const int64_t x_stride = packed.row_bytes();
  _tile_loadd(4, x, x_stride);
  _tile_loadd(5, x + packed.tile_bytes(), x_stride);
  _tile_loadd(6, w, kTileBytes);
  _tile_loadd(7, w + kTileSize, kTileBytes);
  _tile_dpbf16ps(0, 6, 5);
  _tile_dpbf16ps(0, 7, 4);
  _tile_dpbf16ps(0, 7, 5);
  _tile_loadd(6, w + kBlockBytes, kTileBytes);
  _tile_loadd(7, w + kBlockBytes + kTileSize, kTileBytes);
  _tile_dpbf16ps(1, 6, 5);
  _tile_dpbf16ps(1, 7, 4);
  _tile_dpbf16ps(1, 7, 5);
  _tile_loadd(6, w + 2 * kBlockBytes, kTileBytes);
  _tile_loadd(7, w + 2 * kBlockBytes + kTileSize, kTileBytes);
  _tile_dpbf16ps(2, 6, 5);
  _tile_dpbf16ps(2, 7, 4);
  _tile_dpbf16ps(2, 7, 5);
  _tile_loadd(6, w + 3 * kBlockBytes, kTileBytes);
  _tile_loadd(7, w + 3 * kBlockBytes + kTileSize, kTileBytes);
  _tile_dpbf16ps(3, 6, 5);
  _tile_dpbf16ps(3, 7, 4);
  _tile_dpbf16ps(3, 7, 5);
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
void RunMany(const GemmDesc& desc, const GemmParams& params,
             const PackedX& packed, int64_t begin, int64_t end, int64_t g0,
             int64_t g1, float* sums) {
  Panel panel;
  Configure(packed.columns, kParts);
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
            AddTiles(panel.At(t), packed, packed.At(group, tile + t));
          }
          StoreSums(at);
          if (tile + t_end == packed.tiles) {
            Finish(params, packed.rows, group, n0, count, at);
          }
        }
      }
    }
  }
  _tile_release();
}

// y of group g, the last of up to 16 whose sums there are.
void FinishGroups(const GemmParams& params, const PackedX& packed,
                  const Streams& streams, int64_t g, const float* sums) {
  if (g >= streams.apart) {
    return FinishColumns(params, packed.rows, 0, streams.row(g, 0),
                         streams.rest, sums + g % kTileRows * kTileSums,
                         kGroup);
  }
  if (g % kTileRows != kTileRows - 1 && g != streams.apart - 1) return;
  const int64_t first = g / kTileRows * kTileRows;
  for (int64_t r = 0; r < kTileRows; ++r) {
    FinishColumns(params, packed.rows, 0, streams.row(first, r), g - first + 1,
                  sums + r * kGroup, kTileSums);
  }
}

void RunFew(const GemmDesc& desc, const GemmParams& params,
            const PackedX& packed, int64_t begin, int64_t end) {
  alignas(64) std::byte tiles[2 * kBlockBytes];
  alignas(64) float sums[kTileRows * kTileSums];
  const Streams streams(begin, end);
  const int64_t blocks = packed.tiles / kBlockTiles;
  const int64_t x_tile = packed.tile_bytes();
  Configure(packed.columns, kParts);
  // A block after the other, those of a group and then the next group's.
  for (int64_t i = 0; i <= streams.count * blocks; ++i) {
    const int64_t g = i / blocks;
    const int64_t k0 = i % blocks * kBlock;
    std::byte* to = tiles + i % 2 * kBlockBytes;
    const std::byte* w = tiles + (i + 1) % 2 * kBlockBytes;
    const std::byte* x = i > 0 ? packed.At(0, (i - 1) % blocks * 16) : nullptr;
    if (i % blocks == 1 % blocks) _tile_zero(0);
    for (int64_t r = 0; r < kTileRows; ++r) {
      if (g < streams.count) {
        const int64_t near = (r + 3) % kTileRows;
        PackRow(params.w.row<uint16_t>(streams.row(g, r)) + k0, desc.k - k0,
                params.w.row<uint16_t>(streams.row(g, near)) + k0 +
                    (near < r ? kBlock : 0),
                to + r * kTileBytes);
      }
      if (i == 0) continue;
      _tile_loadd(6, w, kTileBytes);
      _tile_loadd(5, x + x_tile, packed.row_bytes());
      _tile_dpbf16ps(0, 6, 5);
      _tile_loadd(7, w + kTileSize, kTileBytes);
      _tile_loadd(4, x, packed.row_bytes());
      _tile_dpbf16ps(0, 7, 4);
      _tile_dpbf16ps(0, 7, 5);
      w += kNextTile;
      x += kParts * x_tile;
    }
    Written(tiles);
    if (i == 0 || i % blocks != 0) continue;
    _tile_stored(0, sums + (g - 1) % kTileRows * kTileSums, kTileBytes);
    Written(sums);
    FinishGroups(params, packed, streams, g - 1, sums);
  }
  _tile_release();
}

// Whole groups of rows, or fewer than one.
void RunTiles(const GemmDesc& desc, const GemmParams& params,
              ThreadPool& pool) {
  const PackedX packed(desc, params);
  // A tile has as many elements of k as a step, if not the same ones.
  pool.ParallelFor(
      packed.groups * packed.tiles, 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          PackX(desc, params, packed, i / packed.tiles, i % packed.tiles);
        }
        Written(packed.data);
      });
  if (packed.groups > 1) {
    auto* sums = reinterpret_cast<float*>(packed.data + packed.bytes());
    return ForEachBlock(
        desc, packed.groups, sums, pool,
        [&](int64_t begin, int64_t end, int64_t g0, int64_t g1, float* at) {
          RunMany(desc, params, packed, begin, end, g0, g1, at);
        });
  }
  constexpr int64_t kRows = kTileRows;  // of w, that a thread takes at least
  const auto grain = kGrainProducts / (kRows * desc.k) + 1;
  pool.ParallelFor((desc.n + kRows - 1) / kRows, grain,
                   [&](int64_t begin, int64_t end) {
                     RunFew(desc, params, packed, begin * kRows,
                            std::min(desc.n, end * kRows));
                   });
}

}  // namespace
}  // namespace inlay::amx
HWY_POP_ATTRIBUTES

namespace inlay {

size_t GemmCpuAmxF16WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  return static_cast<size_t>(std::max(
      max_rows * amx::NumTiles(desc.k) * amx::kParts * amx::kTileBytes +
          amx::SumsBytes(desc, max_rows),
      amx::VectorsWorkspaceBytes(desc, max_rows)));
}

// Whole groups of rows, then fewer than one.
void RunGemmCpuAmxF16(const GemmDesc& desc, const GemmParams& params,
                      ThreadPool& pool) {
  const int64_t rest = params.x.rows() % amx::kGroup;
  const int64_t whole = params.x.rows() - rest;
  if (whole > 0) {
    amx::RunTiles(desc, RowsOfCall(params, 0, whole), pool);
  }
  if (rest == 0) return;
  const GemmParams last = RowsOfCall(params, whole, rest);
  if (rest <= amx::kMostByVectors) {
    amx::RunByVectors(desc, last, pool);
  } else {
    amx::RunTiles(desc, last, pool);
  }
}

}  // namespace inlay
#endif  // __x86_64__
