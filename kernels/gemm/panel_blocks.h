// Products of many rows of x on the CPU, cut into tasks: a panel of rows of w
// by a block of k is put in order once for hundreds of rows of x. What panels
// and tiles are is the Kernel's (panels-inl.h, gemm_cpu_bf16.cc):
//   Element[kPanelElements]: a panel, kPanel rows of w by kBlockK elements of k
//   kTileRows: rows of x in a tile
//   PackX(params, m, k0, k): a tile's block, from row m on, to the workspace
//   Pack(params, n0, columns, k0, k, panel): rows of w to a panel
//   AddTile(params, m, rows, k0, k, panel, sums): adds their products
//   Finish(params, m, n0, columns, sums): a row of y
#ifndef INLAY_KERNELS_GEMM_PANEL_BLOCKS_H_
#define INLAY_KERNELS_GEMM_PANEL_BLOCKS_H_

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "memory/device/thread_pool.h"

namespace inlay {

template <typename Kernel>
class PanelBlocks {
 public:
  static void Run(const GemmDesc& desc, const GemmParams& params,
                  ThreadPool& pool) {
    const int64_t rows = params.x.rows();
    const int64_t panels = (desc.n + kPanel - 1) / kPanel;
    int64_t blocks = (rows + kBlockM - 1) / kBlockM;
    // Work for every thread, while blocks are worth their panels.
    constexpr int64_t kLeastRows = 96;
    const int64_t wanted = 4 * pool.num_threads();
    while (panels * blocks < wanted && rows >= (blocks + 1) * kLeastRows) {
      ++blocks;
    }
    const int64_t block_rows =
        (rows + blocks * kTileRows - 1) / (blocks * kTileRows) * kTileRows;
    const int64_t block_fmas = kPanel * desc.k * block_rows;
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    pool.ParallelFor(tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t k0 = 0; k0 < desc.k; k0 += kBlockK) {
          Kernel::PackX(params, i * kTileRows, k0,
                        std::min(desc.k - k0, kBlockK));
        }
      }
    });
    pool.ParallelFor(panels * blocks, kGrainFmas / block_fmas + 1,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         const int64_t n0 = i / blocks * kPanel;
                         const int64_t m0 = i % blocks * block_rows;
                         if (m0 >= rows) continue;
                         RunBlock(desc, params, m0,
                                  std::min(rows - m0, block_rows), n0,
                                  std::min(desc.n - n0, kPanel));
                       }
                     });
  }

 private:
  static constexpr int64_t kPanel = Kernel::kPanel;
  static constexpr int64_t kTileRows = Kernel::kTileRows;
  static constexpr int64_t kBlockK = Kernel::kBlockK;
  // Rows of x that a panel is put in order for: 512 and some, a multiple of a
  // tile.
  static constexpr int64_t kBlockM = 43 * 12;
  static_assert(kBlockM % kTileRows == 0);
  static constexpr int64_t kGrainFmas = 256 << 10;

  // y[m0 .. m0 + rows, n0 .. n0 + columns), rows <= kBlockM, columns <= kPanel.
  static void RunBlock(const GemmDesc& desc, const GemmParams& params,
                       int64_t m0, int64_t rows, int64_t n0, int64_t columns) {
    alignas(64) typename Kernel::Element panel[Kernel::kPanelElements];
    alignas(64) float sums[kBlockM * kPanel];
    std::fill(sums, sums + rows * kPanel, 0.0f);
    for (int64_t k0 = 0; k0 < desc.k; k0 += kBlockK) {
      const int64_t k = std::min(desc.k - k0, kBlockK);
      Kernel::Pack(params, n0, columns, k0, k, panel);
      const bool last = k0 + kBlockK >= desc.k;
      for (int64_t m = 0; m < rows; m += kTileRows) {
        const int64_t m_end = std::min(m + kTileRows, rows);
        PrefetchNext(desc, params, n0, k0, m, rows);
        if (last) PrefetchOutput(params, m0 + m, m0 + m_end, n0);
        Kernel::AddTile(params, m0 + m, m_end - m, k0, k, panel,
                        sums + m * kPanel);
        for (int64_t r = m; last && r < m_end; ++r) {
          Kernel::Finish(params, m0 + r, n0, columns, sums + r * kPanel);
        }
      }
    }
  }

  // The weights of the next block of k, or of the next panel, are asked for
  // while a block is worked on: at row m of `rows`, that share of them. The
  // processor's own prefetchers give up at the short runs of a block.
  static void PrefetchNext(const GemmDesc& desc, const GemmParams& params,
                           int64_t n0, int64_t k0, int64_t m, int64_t rows) {
    const bool last = k0 + kBlockK >= desc.k;
    const int64_t next_n = last ? n0 + kPanel : n0;
    const int64_t next_k = last ? 0 : k0 + kBlockK;
    const int64_t columns = std::min(kPanel, desc.n - next_n);
    if (columns <= 0) return;
    const DType dtype = params.w.dtype;
    const size_t begin = RowBytes(dtype, static_cast<size_t>(next_k));
    const size_t end = RowBytes(
        dtype, static_cast<size_t>(std::min(desc.k, next_k + kBlockK)));
    const int64_t n_end = std::min(m + kTileRows, rows) * columns / rows;
    for (int64_t n = m * columns / rows; n < n_end; ++n) {
      const std::byte* w = params.w.row<std::byte>(next_n + n);
      for (size_t i = begin; i < end; i += 64) hwy::Prefetch(w + i);
    }
  }

  // Rows of y lie apart, often by a power of two: each is a miss, and found
  // while the tile is computed.
  static void PrefetchOutput(const GemmParams& params, int64_t m, int64_t m_end,
                             int64_t n0) {
    for (; m < m_end; ++m) {
      hwy::Prefetch(params.y.row<float>(m) + n0);
      if (!params.residual.empty()) {
        hwy::Prefetch(params.residual.row<float>(m) + n0);
      }
    }
  }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_PANEL_BLOCKS_H_
