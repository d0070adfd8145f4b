// gemm, the vector row. Weights stay as they lie in the file: row-major,
// narrow, not repacked. Blocks of quantised formats are widened by their codec,
// so that the row serves every format; gemm_cpu_packed.cc is the fast one for
// those.
//
// Batch invariance: y[m, n] has ONE vector accumulator, to which fused
// multiply-adds bring k in ascending order, kLanes at a time (zeros beyond the
// row's end), and whose lanes are added by one fixed tree. Tiles only let
// several (m, n) share loads and conversions; k blocks park accumulators in
// memory unchanged. So every path gives the same bits.
//
//   m <= 16: weights are widened in registers, 4 rows at a time for one or two
//     rows of x, else 3; more than four rows of x go over weights that are in
//     cache by then. Bound by memory bandwidth up to m = 4.
//   m > 16 and block formats: a panel of kPanel weight rows x kBlockK is
//   widened into L2 once for
//     kBlockM rows of x. Bound by the FMA units: tiles of 4 x 3 accumulators
//     need 7 loads for 12 multiply-adds and fit 16 registers.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_cpu_simd.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/quant/quant.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace gemm {

constexpr int64_t kMaxDirectRows = 16;
constexpr int64_t kPanel = 24;    // weight rows; a multiple of 3 and of 4
constexpr int64_t kBlockK = 512;  // 4 rows of x: 8 KB, beside 3 of w in L1
// Accumulators of a block take 96 KB, the panel 48 KB, whatever the lanes.
constexpr int64_t kBlockM = 1024 / static_cast<int64_t>(kLanes);
// Less work than this (in weight bytes, and in multiply-adds) costs less than
// waking a thread.
constexpr int64_t kGrainBytes = 32 << 10;
constexpr int64_t kGrainFmas = 256 << 10;

// y[m, n0 .. n0 + count) from lane sums.
HWY_INLINE void Finish(const GemmParams& params, int64_t m, int64_t n0,
                       int64_t count, VF a, VF b, VF c, VF d) {
  float sums[4];
  StoreSums4(a, b, c, d, sums);
  float* y = params.y.row<float>(m) + n0;
  const float* residual =
      params.residual.empty() ? nullptr : params.residual.row<float>(m) + n0;
  for (int64_t i = 0; i < count; ++i) {
    if (params.bias != nullptr) sums[i] += params.bias[n0 + i];
    if (residual != nullptr) sums[i] += residual[i];
    y[i] = sums[i];
  }
}

// The accumulators of one row of x with kColumns (3 or 4) rows of w.
template <int kColumns>
struct Sums {
  VF c0, c1, c2, c3;

  // Not by initialisers: a generated constructor lacks the target's attribute.
  HWY_INLINE void Clear() { c0 = c1 = c2 = c3 = hn::Zero(DF()); }
  HWY_INLINE void Load(const float* from) {
    c0 = hn::Load(DF(), from);
    c1 = hn::Load(DF(), from + kLanes);
    c2 = hn::Load(DF(), from + 2 * kLanes);
  }
  HWY_INLINE void Store(float* to) const {
    hn::Store(c0, DF(), to);
    hn::Store(c1, DF(), to + kLanes);
    hn::Store(c2, DF(), to + 2 * kLanes);
  }
  HWY_INLINE void Add(VF x, VF w0, VF w1, VF w2, VF w3) {
    c0 = hn::MulAdd(x, w0, c0);
    c1 = hn::MulAdd(x, w1, c1);
    c2 = hn::MulAdd(x, w2, c2);
    if constexpr (kColumns > 3) c3 = hn::MulAdd(x, w3, c3);
  }
};

// y[m .. m + kRows, n0 .. n0 + kColumns).
template <int kRows, int kColumns, typename W>
HWY_NOINLINE void DirectTile(const GemmDesc& desc, const GemmParams& params,
                             int64_t m, int64_t n0) {
  const int64_t last = desc.n - 1;
  // Beyond the last column the last is computed again and dropped.
  const W* HWY_RESTRICT w0 = params.w.row<W>(n0);
  const W* HWY_RESTRICT w1 = params.w.row<W>(HWY_MIN(n0 + 1, last));
  const W* HWY_RESTRICT w2 = params.w.row<W>(HWY_MIN(n0 + 2, last));
  const W* HWY_RESTRICT w3 = params.w.row<W>(HWY_MIN(n0 + 3, last));
  const float* HWY_RESTRICT x0 = params.x.row<float>(m);
  const float* HWY_RESTRICT x1 = params.x.row<float>(m + (kRows > 1 ? 1 : 0));
  const float* HWY_RESTRICT x2 = params.x.row<float>(m + (kRows > 2 ? 2 : 0));
  const float* HWY_RESTRICT x3 = params.x.row<float>(m + (kRows > 3 ? 3 : 0));
  Sums<kColumns> r0, r1, r2, r3;
  r0.Clear();
  r1.Clear();
  r2.Clear();
  r3.Clear();
  const auto k_full = static_cast<size_t>(desc.k) / kLanes * kLanes;
  for (size_t k = 0; k < k_full; k += kLanes) {
    const VF v0 = LoadWide(w0 + k);
    const VF v1 = LoadWide(w1 + k);
    const VF v2 = LoadWide(w2 + k);
    const VF v3 = kColumns > 3 ? LoadWide(w3 + k) : v2;
    r0.Add(LoadWide(x0 + k), v0, v1, v2, v3);
    if constexpr (kRows > 1) r1.Add(LoadWide(x1 + k), v0, v1, v2, v3);
    if constexpr (kRows > 2) r2.Add(LoadWide(x2 + k), v0, v1, v2, v3);
    if constexpr (kRows > 3) r3.Add(LoadWide(x3 + k), v0, v1, v2, v3);
  }
  if (const size_t rest = static_cast<size_t>(desc.k) - k_full; rest != 0) {
    const VF v0 = LoadWideTail(w0 + k_full, rest);
    const VF v1 = LoadWideTail(w1 + k_full, rest);
    const VF v2 = LoadWideTail(w2 + k_full, rest);
    const VF v3 = kColumns > 3 ? LoadWideTail(w3 + k_full, rest) : v2;
    r0.Add(LoadWideTail(x0 + k_full, rest), v0, v1, v2, v3);
    r1.Add(LoadWideTail(x1 + k_full, rest), v0, v1, v2, v3);
    r2.Add(LoadWideTail(x2 + k_full, rest), v0, v1, v2, v3);
    r3.Add(LoadWideTail(x3 + k_full, rest), v0, v1, v2, v3);
  }
  const int64_t count = HWY_MIN(desc.n - n0, int64_t{kColumns});
  Finish(params, m, n0, count, r0.c0, r0.c1, r0.c2, r0.c3);
  if (kRows > 1) Finish(params, m + 1, n0, count, r1.c0, r1.c1, r1.c2, r1.c3);
  if (kRows > 2) Finish(params, m + 2, n0, count, r2.c0, r2.c1, r2.c2, r2.c3);
  if (kRows > 3) Finish(params, m + 3, n0, count, r3.c0, r3.c1, r3.c2, r3.c3);
}

template <typename W>
using DirectTileFn = void (*)(const GemmDesc&, const GemmParams&, int64_t,
                              int64_t);

template <typename W>
void RunDirect(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  constexpr DirectTileFn<W> kWide[] = {&DirectTile<1, 4, W>,
                                       &DirectTile<2, 4, W>};
  constexpr DirectTileFn<W> kTall[] = {
      &DirectTile<1, 3, W>, &DirectTile<2, 3, W>, &DirectTile<3, 3, W>,
      &DirectTile<4, 3, W>};
  const int64_t rows = params.x.rows();
  const int64_t columns = rows <= 2 ? 4 : 3;
  const DirectTileFn<W>* tiles = rows <= 2 ? kWide : kTall;
  const int64_t group_bytes =
      columns * desc.k * static_cast<int64_t>(sizeof(W));
  pool.ParallelFor((desc.n + columns - 1) / columns,
                   kGrainBytes / group_bytes + 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t group = begin; group < end; ++group) {
                       for (int64_t m = 0; m < rows; m += 4) {
                         tiles[HWY_MIN(rows - m, int64_t{4}) - 1](
                             desc, params, m, group * columns);
                       }
                     }
                   });
}

// Advances kRows x 3 accumulators by `k` columns. x: rows x_stride elements
// apart. w: three rows kBlockK apart, zeros beyond k. sums: [kRows][kPanel]
// vectors.
template <int kRows>
HWY_NOINLINE void PanelTile(const float* HWY_RESTRICT x, size_t x_stride,
                            const float* HWY_RESTRICT w, size_t k,
                            float* HWY_RESTRICT sums) {
  constexpr size_t kSumsRow = kPanel * kLanes;
  const float* x1 = x + (kRows > 1 ? x_stride : 0);
  const float* x2 = x + (kRows > 2 ? 2 * x_stride : 0);
  const float* x3 = x + (kRows > 3 ? 3 * x_stride : 0);
  Sums<3> r0, r1, r2, r3;
  r0.Load(sums);
  if constexpr (kRows > 1) r1.Load(sums + kSumsRow);
  if constexpr (kRows > 2) r2.Load(sums + 2 * kSumsRow);
  if constexpr (kRows > 3) r3.Load(sums + 3 * kSumsRow);
  size_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    const VF w0 = hn::Load(DF(), w + i);
    const VF w1 = hn::Load(DF(), w + kBlockK + i);
    const VF w2 = hn::Load(DF(), w + 2 * kBlockK + i);
    r0.Add(LoadWide(x + i), w0, w1, w2, w2);
    if constexpr (kRows > 1) r1.Add(LoadWide(x1 + i), w0, w1, w2, w2);
    if constexpr (kRows > 2) r2.Add(LoadWide(x2 + i), w0, w1, w2, w2);
    if constexpr (kRows > 3) r3.Add(LoadWide(x3 + i), w0, w1, w2, w2);
  }
  if (const size_t rest = k - i; rest != 0) {
    const VF w0 = hn::Load(DF(), w + i);
    const VF w1 = hn::Load(DF(), w + kBlockK + i);
    const VF w2 = hn::Load(DF(), w + 2 * kBlockK + i);
    r0.Add(LoadWideTail(x + i, rest), w0, w1, w2, w2);
    if constexpr (kRows > 1) r1.Add(LoadWideTail(x1 + i, rest), w0, w1, w2, w2);
    if constexpr (kRows > 2) r2.Add(LoadWideTail(x2 + i, rest), w0, w1, w2, w2);
    if constexpr (kRows > 3) r3.Add(LoadWideTail(x3 + i, rest), w0, w1, w2, w2);
  }
  r0.Store(sums);
  if constexpr (kRows > 1) r1.Store(sums + kSumsRow);
  if constexpr (kRows > 2) r2.Store(sums + 2 * kSumsRow);
  if constexpr (kRows > 3) r3.Store(sums + 3 * kSumsRow);
}

using PanelTileFn = void (*)(const float*, size_t, const float*, size_t,
                             float*);

// Elements [k0, k0 + k) of row n, widened, then zeros up to `padded`.
template <typename W>
HWY_INLINE void WidenWeights(const GemmParams& params, int64_t n, int64_t k0,
                             size_t k, float* to, size_t padded) {
  WidenRow(params.w.row<W>(n) + k0, k, to, padded);
}
// BlockCodec stands for a row of blocks. kBlockK is a multiple of every block.
template <>
HWY_INLINE void WidenWeights<BlockCodec>(const GemmParams& params, int64_t n,
                                         int64_t k0, size_t k, float* to,
                                         size_t padded) {
  const DType dtype = params.w.dtype;
  FindBlockCodec(dtype)->decode(
      params.w.row<std::byte>(n) + RowBytes(dtype, static_cast<size_t>(k0)),
      static_cast<int64_t>(k) / GetFormatInfo(dtype).block_elements, to);
  std::fill(to + k, to + padded, 0.0f);
}

// The weights of the next k block are asked for while this one is worked on:
// at row m of `rows`, that share of the panel's rows. The processor's own
// prefetchers give up at the short runs of a block.
HWY_INLINE void PrefetchShare(const GemmParams& params, int64_t n0,
                              int64_t columns, int64_t k0, int64_t k_end,
                              int64_t m, int64_t rows) {
  const int64_t first = m * columns / rows;
  const int64_t last = HWY_MIN(m + 4, rows) * columns / rows;
  const DType dtype = params.w.dtype;
  const size_t begin = RowBytes(dtype, static_cast<size_t>(k0));
  const size_t end =
      RowBytes(dtype, static_cast<size_t>(HWY_MIN(k_end, k0 + kBlockK)));
  for (int64_t n = first; n < last; ++n) {
    const std::byte* w = params.w.row<std::byte>(n0 + n);
    for (size_t i = begin; i < end; i += 64) hwy::Prefetch(w + i);
  }
}

// y[m0 .. m0 + rows, n0 .. n0 + columns), rows <= kBlockM, columns <= kPanel.
template <typename W>
void RunBlock(const GemmDesc& desc, const GemmParams& params, int64_t m0,
              int64_t rows, int64_t n0, int64_t columns) {
  constexpr PanelTileFn kTiles[] = {&PanelTile<1>, &PanelTile<2>, &PanelTile<3>,
                                    &PanelTile<4>};
  HWY_ALIGN float panel[kPanel * kBlockK];
  HWY_ALIGN float sums[kBlockM * kPanel * static_cast<int64_t>(kLanes)];
  constexpr int64_t kSumsRow = kPanel * static_cast<int64_t>(kLanes);
  std::memset(sums, 0, static_cast<size_t>(rows * kSumsRow) * sizeof(float));
  const size_t x_stride = params.x.row_stride_bytes / sizeof(float);
  for (int64_t k0 = 0; k0 < desc.k; k0 += kBlockK) {
    const auto k = static_cast<size_t>(HWY_MIN(desc.k - k0, kBlockK));
    const size_t padded = (k + kLanes - 1) / kLanes * kLanes;
    for (int64_t n = 0; n < (columns + 2) / 3 * 3; ++n) {
      // Columns that fill up the last tile repeat the last one.
      WidenWeights<W>(params, n0 + HWY_MIN(n, columns - 1), k0, k,
                      panel + n * kBlockK, padded);
    }
    for (int64_t m = 0; m < rows; m += 4) {
      const float* x = params.x.row<float>(m0 + m) + k0;
      const PanelTileFn tile = kTiles[HWY_MIN(rows - m, int64_t{4}) - 1];
      if (k0 + kBlockK < desc.k) {
        PrefetchShare(params, n0, columns, k0 + kBlockK, desc.k, m, rows);
      }
      for (int64_t n = 0; n < columns; n += 3) {
        tile(x, x_stride, panel + n * kBlockK, k,
             sums + m * kSumsRow + n * static_cast<int64_t>(kLanes));
      }
    }
  }
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; n += 4) {
      const float* s = sums + m * kSumsRow + n * static_cast<int64_t>(kLanes);
      Finish(params, m0 + m, n0 + n, HWY_MIN(columns - n, int64_t{4}),
             hn::Load(DF(), s), hn::Load(DF(), s + kLanes),
             hn::Load(DF(), s + 2 * kLanes), hn::Load(DF(), s + 3 * kLanes));
    }
  }
}

template <typename W>
void RunPanels(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  const int64_t rows = params.x.rows();
  const int64_t panels = (desc.n + kPanel - 1) / kPanel;
  const int64_t blocks = (rows + kBlockM - 1) / kBlockM;
  const int64_t block_fmas = kPanel * desc.k * HWY_MIN(rows, kBlockM);
  pool.ParallelFor(panels * blocks, kGrainFmas / block_fmas + 1,
                   [&](int64_t begin, int64_t end) HWY_ATTR {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t n0 = i / blocks * kPanel;
                       const int64_t m0 = i % blocks * kBlockM;
                       RunBlock<W>(desc, params, m0,
                                   HWY_MIN(rows - m0, kBlockM), n0,
                                   HWY_MIN(desc.n - n0, kPanel));
                     }
                   });
}

template <typename W>
void RunType(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  if (params.x.rows() <= kMaxDirectRows) {
    RunDirect<W>(desc, params, pool);
  } else {
    RunPanels<W>(desc, params, pool);
  }
}

}  // namespace gemm

void RunGemm(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  switch (desc.weight) {
    case DType::kF16:
      return gemm::RunType<hwy::float16_t>(desc, params, pool);
    case DType::kBF16:
      return gemm::RunType<hwy::bfloat16_t>(desc, params, pool);
    case DType::kF32:
      return gemm::RunType<float>(desc, params, pool);
    default:
      return gemm::RunPanels<BlockCodec>(desc, params, pool);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace inlay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace inlay {
HWY_EXPORT(RunGemm);

absl::Status RunGemmCpuSimd(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunGemm)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
