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
//   m <= 16: weights are widened in registers, 4 rows at a time, or 3 where
//     there are 16 registers and more than two rows of x; more than four rows
//     of x go over weights that are in cache by then. Bound by memory bandwidth
//     up to m = 4.
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
#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/panel_blocks.h"
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

#if HWY_ARCH_ARM_A64 || HWY_TARGET <= HWY_AVX3
constexpr bool kManyRegisters = true;  // 32 of them
#else
constexpr bool kManyRegisters = false;
#endif

// How far ahead the streams of few rows of x ask for weights; 0: not at all.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
constexpr int64_t kAheadBytes = 1024;
#else
constexpr int64_t kAheadBytes = 0;  // not measured there
#endif

// The accumulators of kRows rows of x with kColumns (3 or 4) rows of w.
template <int kRows, int kColumns>
struct Sums {
  VF of[kRows][4];

  // Not by initialisers: a generated constructor lacks the target's attribute.
  HWY_INLINE void Clear() {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int c = 0; c < 4; ++c) of[r][c] = hn::Zero(DF());
    }
  }
  // load(p): kLanes elements from p on, widened.
  template <typename W, typename Load>
  HWY_INLINE void Add(const float* const* x, const W* const* w, size_t k,
                      Load load) {
    VF v[kColumns];
    HWY_UNROLL(4)
    for (int c = 0; c < kColumns; ++c) v[c] = load(w[c] + k);
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const VF u = load(x[r] + k);
      HWY_UNROLL(4)
      for (int c = 0; c < kColumns; ++c) {
        of[r][c] = hn::MulAdd(u, v[c], of[r][c]);
      }
    }
  }
  // totals[r][c] += the sums of the lanes.
  HWY_INLINE void AddTo(float (*totals)[4]) const {
    for (int r = 0; r < kRows; ++r) {
      float sums[4];
      StoreSums4(of[r][0], of[r][1], of[r][2], of[r][3], sums);
      for (int c = 0; c < 4; ++c) totals[r][c] += sums[c];
    }
  }
};

// Rows n, n + apart, .. of w, count of them (at most kColumns), with kRows rows
// of x from m on.
template <int kRows, int kColumns, typename W>
HWY_NOINLINE void DirectTile(const GemmDesc& desc, const GemmParams& params,
                             int64_t m, int64_t n, int64_t apart,
                             int64_t count) {
  const W* w[kColumns];
  // A missing row is the last one once more, and dropped.
  for (int64_t c = 0; c < kColumns; ++c) {
    w[c] = params.w.row<W>(n + apart * HWY_MIN(c, count - 1));
  }
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = params.x.row<float>(m + r);
  const auto whole = [](const auto* p) HWY_ATTR { return LoadWide(p); };
  // A line of the cache at a time from every row: prefetchers lose streams that
  // are visited more often.
  constexpr size_t kLine = HWY_MAX(kLanes, 64 / sizeof(W));
  const auto k_end = static_cast<size_t>(desc.k);
  const size_t k_full = k_end / kLanes * kLanes;
  float totals[kRows][4] = {};
  for (size_t k0 = 0; k0 < k_end; k0 += kBlockK) {
    Sums<kRows, kColumns> sums;
    sums.Clear();
    const size_t block_end = HWY_MIN(k_full, k0 + kBlockK);
    size_t k = k0;
    for (; k + kLine <= block_end; k += kLine) {
      // Behind a row's end the stream's next one, or what does no harm.
      if constexpr (kAheadBytes != 0) {
        HWY_UNROLL(4)
        for (int c = 0; c < kColumns; ++c) {
          hwy::Prefetch(reinterpret_cast<const char*>(w[c] + k) + kAheadBytes);
        }
      }
      HWY_UNROLL(8)
      for (size_t i = 0; i < kLine; i += kLanes) sums.Add(x, w, k + i, whole);
    }
    for (; k < block_end; k += kLanes) sums.Add(x, w, k, whole);
    const size_t rest = k_end - k_full;
    if (rest != 0 && k_full - k0 < kBlockK) {
      sums.Add(x, w, k_full, [rest](const auto* p) HWY_ATTR {
        return LoadWideTail(p, rest);
      });
    }
    sums.AddTo(totals);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < count; ++c) {
      FinishGemmRow(params, m + r, n + c * apart, 1, totals[r] + c);
    }
  }
}

template <typename W>
using DirectTileFn = void (*)(const GemmDesc&, const GemmParams&, int64_t,
                              int64_t, int64_t, int64_t);

template <int kColumns, typename W>
HWY_INLINE void RunColumns(const GemmDesc& desc, const GemmParams& params,
                           const DirectTileFn<W>* tiles, int64_t begin,
                           int64_t end) {
  const int64_t rows = params.x.rows();
  ForEachInStreams(begin, end, kColumns,
                   [&](int64_t n, int64_t apart, int64_t count) {
                     for (int64_t m = 0; m < rows; m += 4) {
                       tiles[HWY_MIN(rows - m, int64_t{4}) - 1](
                           desc, params, m, n, apart, count);
                     }
                   });
}

template <typename W>
void RunDirect(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  const int64_t grain =
      kGrainBytes / (desc.k * static_cast<int64_t>(sizeof(W))) + 1;
  pool.ParallelFor(desc.n, grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    if (kManyRegisters || params.x.rows() <= 2) {
      constexpr int kTall = kManyRegisters ? 4 : 2;
      constexpr DirectTileFn<W> kTiles[] = {
          &DirectTile<1, 4, W>, &DirectTile<2, 4, W>,
          &DirectTile<HWY_MIN(3, kTall), 4, W>,
          &DirectTile<HWY_MIN(4, kTall), 4, W>};
      RunColumns<4, W>(desc, params, kTiles, begin, end);
    } else {
      constexpr DirectTileFn<W> kTiles[] = {
          &DirectTile<1, 3, W>, &DirectTile<2, 3, W>, &DirectTile<3, 3, W>,
          &DirectTile<4, 3, W>};
      RunColumns<3, W>(desc, params, kTiles, begin, end);
    }
  });
}

template <typename W>
void RunType(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  if (params.x.rows() <= kMaxDirectRows) {
    RunDirect<W>(desc, params, pool);
  } else {
    PanelBlocks<PanelKernel<W>>::Run(desc, params, pool);
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
      return PanelBlocks<gemm::PanelKernel<BlockCodec>>::Run(desc, params,
                                                             pool);
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
