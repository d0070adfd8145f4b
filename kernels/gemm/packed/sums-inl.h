// Products by AVX2's instructions (SumTiles of tile-inl.h): few rows of x as
// weights lie, many with panels. Included by gemm_cpu_packed.cc, inside the
// region compiled for AVX2.
#ifndef INLAY_KERNELS_GEMM_PACKED_SUMS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_SUMS_INL_H_

#include "kernels/gemm/packed/panel-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Codes of a panel as tile-inl.h asks a format for them.
template <int most>
struct UnpackedCodes {
  static constexpr int kMost = most;
  template <class V, int t>
  INLAY_INLINE static typename V::Bytes Tile(const uint8_t* p) {
    return V::Get(p + t * kVectorBytes<V>);
  }
};

// Groups of 4 rows: of 16 registers four have sums of products, four those of
// steps, four those of 16 bits.
struct Sums {
  using Vector = Ymm;
  static constexpr int kVectors = 1;
  static constexpr int kGroupRows = 4;
  static constexpr bool kUnsigned = false;
  static constexpr int64_t kXBytes = 256 << 10;
  // Of the codes that as many 16-bit sums hold, the largest.
  static constexpr int MostOf(int most) {
    for (const int alike : {15, 31, 63}) {
      if (most != 0 && TilesOfSum(most) == TilesOfSum(alike)) return alike;
    }
    return most == 0 ? 0 : 127;
  }
  template <class F>
  using KindOf = PanelKind<F::kHalves, F::kHasMin, MostOf(F::kMost)>;
  template <class Kind>
  using PanelOf = Panel<Ymm, Kind, kVectors>;
  using Ahead = WeightsAhead<kVectors>;

  static int RowsOfGroup(int rows) { return rows; }
  static void Start() {}
  static void End() {}
  static void Written(const void*) {}

  template <class Kind>
  static void AddSteps(const PanelOf<Kind>& panel, const uint8_t* x, int rows,
                       int64_t steps, const Ahead& ahead, float* sums) {
    const auto add = rows == 4   ? Add<Kind, 4>
                     : rows == 3 ? Add<Kind, 3>
                     : rows == 2 ? Add<Kind, 2>
                                 : Add<Kind, 1>;
    add(panel, x, steps, ahead, sums);
  }

  template <class Kind, int R, int half>
  INLAY_INLINE static void AddHalfOf(const PanelOf<Kind>& panel,
                                     const uint8_t* x, int64_t s, __m256* y) {
    constexpr int kTilesOfHalf = kTiles / Kind::kHalves;
    constexpr int kFirst = half * kTilesOfHalf;
    __m256i products[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) products[r] = Ymm::NoInts();
    SumTiles<UnpackedCodes<Kind::kMost>, R, kFirst, kFirst + kTilesOfHalf>(
        panel.codes[s][0], x, products);
    const int64_t i = s * Kind::kHalves + half;
    AddProducts<Ymm, Kind, R>(
        panel.scale[i], Kind::kHasMin ? panel.min[i] : nullptr, x + R * kStep,
        half, y, [&](int r) { return products[r]; });
  }

  template <class Kind, int R>
  __attribute__((noinline)) static void Add(const PanelOf<Kind>& panel,
                                            const uint8_t* x, int64_t steps,
                                            const Ahead& ahead, float* sums) {
    __m256 y[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      y[r] = Ymm::LoadSums(sums + r * PanelOf<Kind>::kRows);
    }
    for (int64_t s = 0; s < steps; ++s) {
      ahead.Ask(s);
      AddHalfOf<Kind, R, 0>(panel, x, s, y);
      if constexpr (Kind::kHalves == 2) AddHalfOf<Kind, R, 1>(panel, x, s, y);
      x += R * kStepRowBytes;
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      Ymm::Store(sums + r * PanelOf<Kind>::kRows, y[r]);
    }
  }
};

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_SUMS_INL_H_
