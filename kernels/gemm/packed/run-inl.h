// A product of few rounded rows with packed weights: strips shared out to
// threads. For panel-inl.h, inside the region compiled for its instruction set.
#ifndef INLAY_KERNELS_GEMM_PACKED_RUN_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_RUN_INL_H_

#include "kernels/gemm/packed/levels-inl.h"
#include "kernels/gemm/packed/tile-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Below this many bytes of weights a thread costs more than it brings.
inline constexpr int64_t kGrainBytes = 32 << 10;

// y[m .. m + rows, n0 .. n0 + columns) from the sums of a tile, `width` a row;
// columns: a multiple of kStripRows.
inline void FinishTile(const GemmDesc& desc, const GemmParams& params,
                       int64_t m, int rows, int64_t n0, int64_t columns,
                       int64_t width, const float* sums) {
  const int64_t count = std::min(columns, desc.n - n0);
  if (count < columns) {
    for (int r = 0; r < rows; ++r) {
      FinishGemmRow(params, m + r, n0, count, sums + r * width);
    }
    return;
  }
  for (int r = 0; r < rows; ++r) {
    float* y = params.y.row<float>(m + r) + n0;
    const float* residual = params.residual.empty()
                                ? nullptr
                                : params.residual.row<float>(m + r) + n0;
    for (int64_t i = 0; i < columns; i += kStripRows) {
      __m256 value = _mm256_loadu_ps(sums + r * width + i);
      if (params.bias != nullptr) {
        value = _mm256_add_ps(value, _mm256_loadu_ps(params.bias + n0 + i));
      }
      if (residual != nullptr) {
        value = _mm256_add_ps(value, _mm256_loadu_ps(residual + i));
      }
      _mm256_storeu_ps(y + i, value);
    }
  }
}

using TileFn = void (*)(const uint8_t*, int64_t, const uint8_t*, int64_t,
                        float*);
template <class V, class F>
inline constexpr TileFn kTileOf[kTileRows] = {Tile<V, F, 1>, Tile<V, F, 2>};

// Strips [begin, end), a multiple of V::kStrips, with the rounded rows. A
// vector's strips come from parts of the range of their own: memory keeps more
// busy with long streams than with strips side by side, which end after some
// kilobytes.
template <class V, class F>
void RunStrips(const GemmDesc& desc, const GemmParams& params, int64_t begin,
               int64_t end) {
  constexpr int64_t kWidth = kStripRows * V::kStrips;
  alignas(64) float sums[kTileRows * kWidth];
  const auto rows = static_cast<int>(params.x.rows());
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  const int64_t apart = (end - begin) / V::kStrips;
  for (int64_t strip = begin; strip < begin + apart; ++strip) {
    kTileOf<V, F>[rows - 1](
        w + strip * StripBytes<F>(desc.k), apart * StripBytes<F>(desc.k),
        static_cast<const uint8_t*>(params.workspace), desc.k, sums);
    for (int64_t i = 0; i < V::kStrips; ++i) {
      FinishTile(desc, params, 0, rows, (strip + i * apart) * kStripRows,
                 kStripRows, kWidth, sums + i * kStripRows);
    }
  }
}

// At most kTileRows rows of x.
template <class V, class F>
void RunFew(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  const auto rows = static_cast<int>(params.x.rows());
  for (int m = 0; m < rows; ++m) {
    RoundRow(params.x.row<float>(m), params.permutation, desc.k, m, rows,
             F::kHalves, static_cast<uint8_t*>(params.workspace));
  }
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const int64_t whole = strips / V::kStrips * V::kStrips;
  pool.ParallelFor((strips + V::kStrips - 1) / V::kStrips,
                   kGrainBytes / (V::kStrips * StripBytes<F>(desc.k)) + 1,
                   [&](int64_t begin, int64_t end) {
                     RunStrips<V, F>(desc, params, begin * V::kStrips,
                                     std::min(end * V::kStrips, whole));
                     // A strip that is left.
                     if (end * V::kStrips > whole) {
                       RunStrips<Ymm, F>(desc, params, whole, strips);
                     }
                   });
}

// The formats that are multiplied as integers.
template <class... F>
struct FormatList {};
using IntegerFormats =
    FormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
               IQ4_NL, IQ4_XS, IQ2_XXS, IQ2Of16<DType::kIQ2_XS, IQ2_XSBlock>,
               IQ2Of16<DType::kIQ2_S, IQ2_SBlock>, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M,
               MXFP4, NVFP4, NVFP4_F32, Ternary<DType::kTQ1_0, TQ1_0Block>,
               Ternary<DType::kTQ2_0, TQ2_0Block>, U4<DType::kU4_G32, 1>,
               U4<DType::kU4_G128, 4>, I8<DType::kI8_G32, 1>,
               I8<DType::kI8_G128, 4>, NF4, BNB_FP4>;

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_RUN_INL_H_
