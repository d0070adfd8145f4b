// Products of many rows of x on the CPU, cut into tasks: a panel of rows of w
// by a block of k is put in order once for hundreds of rows of x. What panels
// and tiles are is the Kernel's (panels-inl.h, gemm_cpu_bf16.cc):
//   Element[kPanelElements]: a panel, kPanel rows of w by kBlockK elements of k
//   kTileRows: rows of x in a tile
//   PackX(params, m, k0, k): a tile's block, from row m on, to the workspace
//   Pack(params, n0, columns, k0, k, panel): rows of w to a panel
//   AddTile(params, m, rows, columns, k0, k, panel, next, sums): adds their
//     products, to nothing where k0 is 0; calls next.Ask() kAsks times while it
//     does. sums: kTileRows * kPanel of the tile, however they lie
//   Finish(params, m, rows, n0, columns, sums): a tile of y
//   Streams(y): whether Finish stores past the caches
//   Publish(): what Finish stored is seen by others from here on
#ifndef INLAY_KERNELS_GEMM_PANEL_BLOCKS_H_
#define INLAY_KERNELS_GEMM_PANEL_BLOCKS_H_

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "memory/device/thread_pool.h"

namespace inlay {

// Asks for the bytes [begin, end) of rows [n, n + count) of w, a share of them
// at a time: the processor's own prefetchers give up at such short runs, and
// many asked for at once wait for each other.
class WeightPrefetch {
 public:
  WeightPrefetch(const TensorView& w, int64_t n, int64_t count, size_t begin,
                 size_t end, int64_t shares)
      : w_(w),
        n_(n),
        begin_(begin),
        end_(end),
        at_(begin),
        lines_(std::max<int64_t>(count, 0) *
               static_cast<int64_t>((end - begin + kLine - 1) / kLine)),
        shares_(shares) {}

  void Ask() {
    for (due_ += lines_; due_ >= shares_; due_ -= shares_) {
      hwy::Prefetch(w_.row<std::byte>(n_) + at_);
      at_ += kLine;
      if (at_ >= end_) {
        at_ = begin_;
        ++n_;
      }
    }
  }

 private:
  static constexpr size_t kLine = 64;
  const TensorView& w_;
  int64_t n_;
  const size_t begin_, end_;
  size_t at_;
  const int64_t lines_, shares_;
  int64_t due_ = 0;  // lines times shares_
};

template <typename Kernel>
class PanelBlocks {
 public:
  static void Run(const GemmDesc& desc, const GemmParams& params,
                  ThreadPool& pool) {
    const int64_t rows = params.x.rows();
    if (rows == 0) return;
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
  static constexpr int64_t kLine = 16;  // floats

  // y[m0 .. m0 + rows, n0 .. n0 + columns), rows <= kBlockM, columns <= kPanel.
  static void RunBlock(const GemmDesc& desc, const GemmParams& params,
                       int64_t m0, int64_t rows, int64_t n0, int64_t columns) {
    alignas(64) typename Kernel::Element panel[Kernel::kPanelElements];
    alignas(64) float sums[kBlockM * kPanel];
    for (int64_t k0 = 0; k0 < desc.k; k0 += kBlockK) {
      const int64_t k = std::min(desc.k - k0, kBlockK);
      Kernel::Pack(params, n0, columns, k0, k, panel);
      const bool last = k0 + kBlockK >= desc.k;
      WeightPrefetch next = NextBlock(desc, params, n0, k0, rows);
      for (int64_t m = 0; m < rows; m += kTileRows) {
        const int64_t m_end = std::min(m + kTileRows, rows);
        if (last) PrefetchOutput(params, m0 + m, m0 + m_end, n0);
        Kernel::AddTile(params, m0 + m, m_end - m, columns, k0, k, panel, next,
                        sums + m * kPanel);
        if (last) {
          Kernel::Finish(params, m0 + m, m_end - m, n0, columns,
                         sums + m * kPanel);
        }
      }
    }
    Kernel::Publish();
  }

  // The weights of the next block of k, or of the next panel, asked for while
  // `rows` rows are multiplied with those of a block.
  static WeightPrefetch NextBlock(const GemmDesc& desc,
                                  const GemmParams& params, int64_t n0,
                                  int64_t k0, int64_t rows) {
    const bool last = k0 + kBlockK >= desc.k;
    const int64_t n = last ? n0 + kPanel : n0;
    const int64_t k = last ? 0 : k0 + kBlockK;
    const DType dtype = params.w.dtype;
    const auto bytes = [dtype](int64_t elements) {
      return RowBytes(dtype, static_cast<size_t>(elements));
    };
    return WeightPrefetch(params.w, n, std::min(kPanel, desc.n - n), bytes(k),
                          bytes(std::min(desc.k, k + kBlockK)),
                          (rows + kTileRows - 1) / kTileRows * Kernel::kAsks);
  }

  // Rows of y lie apart, often by a power of two: each is a miss, and found
  // while the tile is computed.
  static void PrefetchOutput(const GemmParams& params, int64_t m, int64_t m_end,
                             int64_t n0) {
    const bool y = !Kernel::Streams(params.y);
    const bool residual = !params.residual.empty();
    if (!y && !residual) return;
    for (; m < m_end; ++m) {
      for (int64_t i = n0; i < n0 + kPanel; i += kLine) {
        if (y) hwy::Prefetch(params.y.row<float>(m) + i);
        if (residual) hwy::Prefetch(params.residual.row<float>(m) + i);
      }
    }
  }
};

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_PANEL_BLOCKS_H_
