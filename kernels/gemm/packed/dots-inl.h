// Products by an instruction that adds four products of bytes to 32 bits: few
// rows of x as tile-inl.h has them, many with panels. Included by
// gemm_cpu_packed_vnni.cc and gemm_cpu_packed_avx_vnni.cc, inside the region
// compiled for their instruction set.
#ifndef INLAY_KERNELS_GEMM_PACKED_DOTS_INL_H_
#define INLAY_KERNELS_GEMM_PACKED_DOTS_INL_H_

#include "kernels/gemm/packed/panel-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {

// Groups of 3 * unit rows; of the registers kVectors * 3 * unit have sums of
// products, as many those of steps. unit: what rows of a last group are a
// multiple of.
template <class V, int unit>
struct Dots {
  static_assert(kRowsUnit % unit == 0);
  using Vector = V;
  static constexpr int kVectors = 2;
  static constexpr int kGroupRows = 3 * unit;
  static constexpr bool kUnsigned = true;
  // L2 of those with AVX-512 is 1 to 2 MB, of others from 512 KB on.
  static constexpr int64_t kXBytes = V::kStrips * (int64_t{384} << 10);
  template <class F>
  using KindOf = PanelKind<F::kHalves, F::kHasMin, F::kMost == 0 ? 0 : 255>;
  template <class Kind>
  using PanelOf = Panel<V, Kind, kVectors>;
  using Ahead = WeightsAhead<kVectors * V::kStrips>;

  static int RowsOfGroup(int rows) { return (rows + unit - 1) / unit * unit; }
  static void Start() {}
  static void End() {}
  static void Written(const void*) {}

  template <class Kind>
  static void AddSteps(const PanelOf<Kind>& panel, const uint8_t* x, int rows,
                       int64_t steps, const Ahead& ahead, float* sums) {
    const auto add = rows == 3 * unit   ? Add<Kind, 3 * unit>
                     : rows == 2 * unit ? Add<Kind, 2 * unit>
                                        : Add<Kind, unit>;
    add(panel, x, steps, ahead, sums);
  }

  template <class Kind, int R>
  __attribute__((noinline)) static void Add(const PanelOf<Kind>& panel,
                                            const uint8_t* x, int64_t steps,
                                            const Ahead& ahead, float* sums) {
    constexpr int kTilesOfHalf = kTiles / Kind::kHalves;
    constexpr int kRows = PanelOf<Kind>::kRows;
    typename V::Floats y[kVectors][R];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        y[v][r] = V::LoadSums(sums + r * kRows + v * kVectorRows<V>);
      }
    }
    for (int64_t s = 0; s < steps; ++s) {
      ahead.Ask(s);
      const uint8_t* factors = x + R * kStep;
#pragma GCC unroll 2
      for (int half = 0; half < Kind::kHalves; ++half) {
        typename V::Bytes products[kVectors][R];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          products[0][r] = products[1][r] =
              Kind::kMost == 0 ? V::SetFour(factors + r * kFactorsBytes +
                                            offsetof(StepFactors, start))
                               : V::NoInts();
        }
#pragma GCC unroll 8
        for (int t = half * kTilesOfHalf; t < (half + 1) * kTilesOfHalf; ++t) {
          const uint8_t* codes = panel.codes[s][0] + t * kVectorBytes<V>;
          const typename V::Bytes w0 = V::Get(codes);
          const typename V::Bytes w1 = V::Get(codes + kTiles * kVectorBytes<V>);
#pragma GCC unroll 6
          for (int r = 0; r < R; ++r) {
            const typename V::Bytes four = V::SetFour(x + kStep * r + 4 * t);
            products[0][r] = V::Dot(products[0][r], w0, four);
            products[1][r] = V::Dot(products[1][r], w1, four);
          }
        }
        const int64_t i = s * Kind::kHalves + half;
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          const float* min =
              Kind::kHasMin ? panel.min[i] + v * kVectorRows<V> : nullptr;
          AddProducts<V, Kind, R>(panel.scale[i] + v * kVectorRows<V>, min,
                                  factors, half, y[v],
                                  [&](int r) { return products[v][r]; });
        }
      }
      x += R * kStepRowBytes;
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        V::Store(sums + r * kRows + v * kVectorRows<V>, y[v][r]);
      }
    }
  }
};

struct DotsFormat {
  DType dtype;
  void (*run)(const GemmDesc&, const GemmParams&, ThreadPool&);
};

// `others`: beside those that are multiplied as integers.
template <class V, int unit, class... F, class... Other>
constexpr std::array<DotsFormat, sizeof...(F) + sizeof...(Other)> DotsFormats(
    FormatList<F...>, Other... others) {
  return {DotsFormat{F::kDType, RunRows<Dots<V, unit>, F>}..., others...};
}

template <class Formats>
const DotsFormat* FindDots(const Formats& formats, DType dtype) {
  for (const DotsFormat& format : formats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

}  // namespace inlay::packed::INLAY_PACKED_ISA

#endif  // INLAY_KERNELS_GEMM_PACKED_DOTS_INL_H_
