// gemm, the vector row. Weights stay as they lie in the file: row-major,
// narrow, not repacked. Blocks of quantised formats are widened by their codec,
// so that the row serves every format; gemm_cpu_packed.cc is the fast one for
// those.
//
// Batch invariance: every y[m, n] is summed in one order. k is cut into blocks
// of kBlockK. In a block, lane j has one chain of fused multiply-adds over the
// elements j, j + kLanes, .. in ascending order, with zeros beyond the row's
// end; lanes are added by one fixed tree (StoreSums4), and blocks in ascending
// order. Few rows have lanes in a vector, many have them one after another: the
// same operations, so the same bits.
//
//   m <= 16: weights are widened in registers, 4 rows at a time for one or two
//     rows of x, else 3; more than four rows of x go over weights that are in
//     cache by then. Bound by memory bandwidth up to m = 4.
//   m > 16 and block formats: panels-inl.h.
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_cpu_simd.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/finish.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/panels-inl.h"
#include "kernels/simd_float-inl.h"
#include "memory/device/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace inlay {
namespace HWY_NAMESPACE {
namespace gemm {

constexpr int64_t kMaxDirectRows = 16;
// Less work than this costs less than waking a thread.
constexpr int64_t kGrainBytes = 32 << 10;

// The accumulators of one row of x with kColumns (3 or 4) rows of w.
template <int kColumns>
struct Sums {
  VF c0, c1, c2, c3;

  // Not by initialisers: a generated constructor lacks the target's attribute.
  HWY_INLINE void Clear() { c0 = c1 = c2 = c3 = hn::Zero(DF()); }
  HWY_INLINE void Add(VF x, VF w0, VF w1, VF w2, VF w3) {
    c0 = hn::MulAdd(x, w0, c0);
    c1 = hn::MulAdd(x, w1, c1);
    c2 = hn::MulAdd(x, w2, c2);
    if constexpr (kColumns > 3) c3 = hn::MulAdd(x, w3, c3);
  }
};

// totals[0 .. 4) += the sums of a row's lanes.
template <int kColumns>
HWY_INLINE void AddSums(const Sums<kColumns>& row, float* totals) {
  float sums[4];
  StoreSums4(row.c0, row.c1, row.c2, row.c3, sums);
  for (int i = 0; i < 4; ++i) totals[i] += sums[i];
}

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
  const auto k_end = static_cast<size_t>(desc.k);
  const size_t k_full = k_end / kLanes * kLanes;
  // The next rows of w are asked for while these are multiplied the first time:
  // the processor's own prefetchers do not keep memory busy with short rows.
  const size_t ahead =
      m == 0 ? kColumns * params.w.row_stride_bytes / sizeof(W) : 0;
  float totals[4][4] = {};
  for (size_t k0 = 0; k0 < k_end; k0 += kBlockK) {
    Sums<kColumns> r0, r1, r2, r3;
    r0.Clear();
    r1.Clear();
    r2.Clear();
    r3.Clear();
    const size_t block_end = HWY_MIN(k_full, k0 + kBlockK);
    for (size_t k = k0; k < block_end; k += kLanes) {
      const VF v0 = LoadWide(w0 + k);
      const VF v1 = LoadWide(w1 + k);
      const VF v2 = LoadWide(w2 + k);
      const VF v3 = kColumns > 3 ? LoadWide(w3 + k) : v2;
      if (ahead != 0) {
        hwy::Prefetch(w0 + k + ahead);
        hwy::Prefetch(w1 + k + ahead);
        hwy::Prefetch(w2 + k + ahead);
        if constexpr (kColumns > 3) hwy::Prefetch(w3 + k + ahead);
      }
      r0.Add(LoadWide(x0 + k), v0, v1, v2, v3);
      if constexpr (kRows > 1) r1.Add(LoadWide(x1 + k), v0, v1, v2, v3);
      if constexpr (kRows > 2) r2.Add(LoadWide(x2 + k), v0, v1, v2, v3);
      if constexpr (kRows > 3) r3.Add(LoadWide(x3 + k), v0, v1, v2, v3);
    }
    const size_t rest = k_end - k_full;
    if (rest != 0 && k_full - k0 < kBlockK) {
      const VF v0 = LoadWideTail(w0 + k_full, rest);
      const VF v1 = LoadWideTail(w1 + k_full, rest);
      const VF v2 = LoadWideTail(w2 + k_full, rest);
      const VF v3 = kColumns > 3 ? LoadWideTail(w3 + k_full, rest) : v2;
      r0.Add(LoadWideTail(x0 + k_full, rest), v0, v1, v2, v3);
      r1.Add(LoadWideTail(x1 + k_full, rest), v0, v1, v2, v3);
      r2.Add(LoadWideTail(x2 + k_full, rest), v0, v1, v2, v3);
      r3.Add(LoadWideTail(x3 + k_full, rest), v0, v1, v2, v3);
    }
    AddSums(r0, totals[0]);
    if constexpr (kRows > 1) AddSums(r1, totals[1]);
    if constexpr (kRows > 2) AddSums(r2, totals[2]);
    if constexpr (kRows > 3) AddSums(r3, totals[3]);
  }
  const int64_t count = HWY_MIN(desc.n - n0, int64_t{kColumns});
  for (int r = 0; r < kRows; ++r) {
    FinishGemmRow(params, m + r, n0, count, totals[r]);
  }
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

// Whatever the target: x in tiles (panels-inl.h) of at most 12 rows, in vectors
// of at most 16.
size_t GemmCpuSimdWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  if (!IsBlockFormat(desc.weight) &&
      max_rows <= HWY_NAMESPACE::gemm::kMaxDirectRows) {
    return 0;
  }
  const int64_t rows = (max_rows + 11) / 12 * 12;
  const int64_t k = (desc.k + 15) / 16 * 16;
  return static_cast<size_t>(rows * k) * sizeof(float);
}

absl::Status RunGemmCpuSimd(const GemmDesc& desc, const GemmParams& params,
                            Stream& stream) {
  HWY_DYNAMIC_DISPATCH(RunGemm)(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // HWY_ONCE
