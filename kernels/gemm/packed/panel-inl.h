// Many rows of x: strips by some steps are unpacked into L1, codes as bytes and
// factors as floats, and groups of rounded rows pass over them. For sums-inl.h,
// dots-inl.h and gemm_cpu_packed_amx.cc, inside the region compiled for their
// instruction set.
//
// `Products` is a struct that has
//   Vector         of vectors-inl.h
//   KindOf<F>      PanelKind of format F
//   kVectors       of rows of w in a panel
//   kGroupRows     rows of x in a group; the last one of a call may have fewer
//   RowsOfGroup(rows)  that so many take: what is added are zeros
//   kUnsigned      signed codes are to have 128 added
//   kXBytes        of rounded x at a time: what stays in L2
//   Start(), End()     around the work of a thread
//   Written(bytes)     what AddSteps is to read has been written
//   AddSteps(panel, x, rows, steps, ahead, sums)   sums[row][w's row] +=
//                  `steps` steps of the panel with those of the group that
//                  begin at x; ahead.Ask(s) at each
#ifndef INLAY_KERNELS_GEMM_PACKED_PANEL_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_PANEL_INL_H_

#include "kernels/gemm/packed/run-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

template <class V>
inline constexpr int kVectorRows = kStripRows* V::kStrips;  // of w
template <class V>
inline constexpr int kVectorBytes = kTileBytes* V::kStrips;
// Of a panel's rows of w with rows of x, on a thread's stack.
inline constexpr int64_t kPanelSums = 1 << 14;

// All that products with unpacked weights depend on. most: a largest code, or
// 0 where codes are signed.
template <int halves, bool has_min, int most>
struct PanelKind {
  static constexpr int kHalves = halves;
  static constexpr bool kHasMin = has_min;
  static constexpr int kMost = most;
};

template <class V, class Kind, int vectors>
struct Panel {
  static constexpr int kStepBytes = vectors * kTiles * kVectorBytes<V>;
  static constexpr int kSteps = (16 << 10) / kStepBytes;
  static constexpr int kRows = vectors * kVectorRows<V>;  // of w
  alignas(64) uint8_t codes[kSteps][vectors][kTiles * kVectorBytes<V>];
  alignas(64) float scale[kSteps * Kind::kHalves][kRows];
  alignas(64) float min[Kind::kHasMin ? kSteps * Kind::kHalves : 1][kRows];
};

// The weights that are unpacked next, asked for, into L2, while products with a
// panel go on: a core's memory would rest for as long.
template <int count>
struct WeightsAhead {
  const uint8_t* strips[count] = {};
  int64_t bytes = 0;  // of a strip, a step

  INLAY_INLINE void Ask(int64_t step) const {
    if (bytes == 0) return;
    for (const uint8_t* strip : strips) {
      for (int64_t i = step * bytes; i < (step + 1) * bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(strip + i), _MM_HINT_T1);
      }
    }
  }
};

// Where steps of a panel's strips lie, `strips` of them.
template <class F, int strips>
struct PanelStrips {
  PanelStrips(const GemmDesc& desc, const GemmParams& params)
      : w(reinterpret_cast<const uint8_t*>(params.w.data)),
        strip_bytes(StripBytes<F>(desc.k)),
        last((desc.n - 1) / kStripRows) {}

  // The last strip stands for those that are missing.
  const uint8_t* At(int64_t panel, int strip, int64_t step) const {
    constexpr int64_t kBytes = F::kHeader + F::kSteps * StepBytes<F>();
    const int64_t of_w = std::min<int64_t>(panel * strips + strip, last);
    return w + of_w * strip_bytes + step / F::kSteps * kBytes;
  }
  // `count` steps from `step` on, asked for during `steps` others.
  WeightsAhead<strips> Ahead(int64_t panel, int64_t step, int64_t count,
                             int64_t steps) const {
    WeightsAhead<strips> ahead;
    ahead.bytes = (At(0, 0, count) - At(0, 0, 0)) / steps;
    for (int i = 0; i < strips; ++i) {
      ahead.strips[i] = At(panel, i, step);
    }
    return ahead;
  }

  const uint8_t* w;
  int64_t strip_bytes;
  int64_t last;
};

template <class V, class F, bool to_unsigned, int t>
INLAY_INLINE void UnpackTiles(typename V::At codes, uint8_t* to) {
  if constexpr (to_unsigned) {
    V::Put(to + t * kVectorBytes<V>, UnsignedTile<V, F, t>(codes));
  } else {
    V::Put(to + t * kVectorBytes<V>, F::template Tile<V, t>(codes));
  }
  if constexpr (t + 1 < kTiles) {
    UnpackTiles<V, F, to_unsigned, t + 1>(codes, to);
  }
}

// `steps` steps at `at`, whole blocks, into vector `v`.
template <class V, class F, bool to_unsigned, class P>
void Unpack(typename V::At at, int64_t steps, int v, P& panel) {
  constexpr bool kAdd = to_unsigned && F::kMost == 0;
  for (int64_t block = 0; block < steps; block += F::kSteps) {
    const typename V::template Header<F> header(at);
    at = at + F::kHeader;
    for (int64_t s = block; s < block + F::kSteps; ++s) {
      UnpackTiles<V, F, kAdd, 0>(at + F::kScales, panel.codes[s][v]);
      for (int half = 0; half < F::kHalves; ++half) {
        const int64_t i = s * F::kHalves + half;
        typename V::Floats scale, min;
        V::template Factors<F>(header, at, half, &scale, &min);
        V::Store(panel.scale[i] + v * kVectorRows<V>, scale);
        if constexpr (F::kHasMin) {
          V::Store(panel.min[i] + v * kVectorRows<V>, min);
        }
      }
      at = at + StepBytes<F>();
    }
  }
}

// y[r] = fma(products, scale * scale of x, y[r]), then with the minimum;
// scale, min: of a vector's rows of w; products(r): exact ones of row r;
// factors: of the rows of x; half: of the step.
template <class V, class Kind, int R, class ProductsOf>
INLAY_INLINE void AddProducts(const float* scale, const float* min,
                              const uint8_t* factors, int half,
                              typename V::Floats* y, ProductsOf products) {
  const typename V::Floats scales = V::LoadSums(scale);
  constexpr size_t kScale = offsetof(StepFactors, scale);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    y[r] =
        V::MulAdd(V::FromInts(products(r)),
                  V::Mul(scales, V::Set(FactorAt(factors, r, kScale))), y[r]);
  }
  if constexpr (Kind::kHasMin) {
    const size_t at =
        offsetof(StepFactors, sums) + sizeof(float) * static_cast<size_t>(half);
    const typename V::Floats mins = V::LoadSums(min);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      y[r] = V::MulAdd(mins, V::Set(FactorAt(factors, r, at)), y[r]);
    }
  }
}

// The rows of x that begin at m, a multiple of kGroupRows.
template <class Products>
int GroupRowsAt(const GemmParams& params, int64_t m) {
  return Products::RowsOfGroup(static_cast<int>(
      std::min<int64_t>(params.x.rows() - m, Products::kGroupRows)));
}

// Panels' rows of w [begin, end) with rows [m0, m1) of x, whose sums fit.
template <class Products, class F>
void RunPanelRows(const GemmDesc& desc, const GemmParams& params, int64_t begin,
                  int64_t end, int64_t m0, int64_t m1) {
  constexpr int kGroupRows = Products::kGroupRows;
  using V = typename Products::Vector;
  using P = Panel<V, typename Products::template KindOf<F>, Products::kVectors>;
  constexpr int kStrips = Products::kVectors * V::kStrips;
  P panel;
  alignas(64) float sums[kPanelSums];
  const int64_t groups = (m1 - m0 + kGroupRows - 1) / kGroupRows;
  const auto* x = static_cast<const uint8_t*>(params.workspace);
  const PanelStrips<F, kStrips> strips(desc, params);
  const int64_t all = desc.k / kStep;
  for (int64_t i = begin; i < end; ++i) {
    std::fill(sums, sums + groups * kGroupRows * P::kRows, 0.0f);
    for (int64_t step = 0; step < all; step += P::kSteps) {
      const int64_t steps = std::min<int64_t>(P::kSteps, all - step);
      for (int v = 0; v < Products::kVectors; ++v) {
        const int strip = v * V::kStrips;
        const uint8_t* first = strips.At(i, strip, step);
        const uint8_t* last = strips.At(i, strip + V::kStrips - 1, step);
        Unpack<V, F, Products::kUnsigned>(V::Strips(first, last - first), steps,
                                          v, panel);
      }
      Products::Written(&panel);
      WeightsAhead<kStrips> ahead;
      if (const int64_t next = step + steps; next < all) {
        ahead = strips.Ahead(i, next, std::min<int64_t>(P::kSteps, all - next),
                             steps);
      } else if (i + 1 < end) {
        ahead =
            strips.Ahead(i + 1, 0, std::min<int64_t>(P::kSteps, all), steps);
      }
      for (int64_t m = m0; m < m1; m += kGroupRows) {
        const int rows = GroupRowsAt<Products>(params, m);
        Products::AddSteps(
            panel,
            x + m * RoundedRowBytes(desc.k) + step * rows * kStepRowBytes, rows,
            steps, ahead, sums + (m - m0) * P::kRows);
        ahead.bytes = 0;
      }
    }
    FinishTile(desc, params, m0, static_cast<int>(m1 - m0), i * P::kRows,
               P::kRows, P::kRows, sums);
  }
}

template <class Products, class F>
void RunPanels(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  constexpr int kGroupRows = Products::kGroupRows;
  constexpr int kRows =
      Products::kVectors * kVectorRows<typename Products::Vector>;
  auto* x = static_cast<uint8_t*>(params.workspace);
  const int64_t rows = params.x.rows();
  const int64_t row_bytes = RoundedRowBytes(desc.k);
  const int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  pool.ParallelFor(groups * kGroupRows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const auto row = static_cast<int>(m % kGroupRows);
      const int in_group = GroupRowsAt<Products>(params, m - row);
      uint8_t* group = x + (m - row) * row_bytes;
      if (m < rows) {
        RoundRow(params.x.row<float>(m), params.permutation, desc.k, row,
                 in_group, F::kHalves, group);
      } else if (row < in_group) {
        RoundNothing(desc.k, row, in_group, group);
      }
    }
    Products::Written(x);
  });
  const int64_t most =
      std::clamp<int64_t>(Products::kXBytes / row_bytes / kGroupRows, 1,
                          kPanelSums / kRows / kGroupRows);
  const int64_t blocks = (groups + most - 1) / most;
  const int64_t block = (groups + blocks - 1) / blocks * kGroupRows;
  for (int64_t m0 = 0; m0 < rows; m0 += block) {
    pool.ParallelFor(
        (desc.n + kRows - 1) / kRows,
        kGrainBytes * kStripRows / (kRows * StripBytes<F>(desc.k)) + 1,
        [&](int64_t begin, int64_t end) {
          Products::Start();
          RunPanelRows<Products, F>(desc, params, begin, end, m0,
                                    std::min(rows, m0 + block));
          Products::End();
        });
  }
}

template <class Products, class F>
void RunRows(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  if (params.x.rows() == 0) return;
  const auto run = params.x.rows() <= kTileRows
                       ? RunFew<typename Products::Vector, F>
                       : RunPanels<Products, F>;
  run(desc, params, pool);
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_PANEL_INL_H_
