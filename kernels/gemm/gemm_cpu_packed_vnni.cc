// gemm over quantised weights, on x86-64 with AVX-512 and its dot products of
// bytes (VNNI). Weights and rounded activations lie as gemm_cpu_packed.cc has
// them, so that the layout does not depend on the machine's best row; a vector
// holds two strips. Sums of a block are exact and blocks are added in the same
// order by the same operations: the same bits.
//
// A step of two strips costs a row of x 8 dot products, each with x broadcast
// by its load, and 3 more instructions (signed codes: 6): 512 products for 11,
// where AVX2 takes 24 for 256.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <array>

#include "kernels/gemm/packed/includes.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own intrinsics, which leave unused operands undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define INLAY_PACKED_ISA vnni
#define INLAY_PACKED_VNNI 1
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")
#include "kernels/gemm/packed/panel-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {
namespace {

// From so many rows of x on weights are unpacked first.
constexpr int64_t kPanelFrom = 5;

// Twelve vectors have sums of products, twelve those of steps.
struct Dots {
  static constexpr int kVectors = 2;
  static constexpr int kGroupRows = 6;
  static constexpr bool kUnsigned = true;
  template <class Kind>
  using PanelOf = Panel<Kind, kVectors>;

  // Even: what GemmCpuPackedWorkspaceBytes has room for.
  static int RowsOfGroup(int rows) { return (rows + 1) / 2 * 2; }
  template <class F>
  static void Start() {}
  static void End() {}
  static void Written(const void*) {}

  template <class Kind>
  static void AddSteps(const PanelOf<Kind>& panel, const uint8_t* x, int rows,
                       int64_t steps, const WeightsAhead<kVectors>& ahead,
                       float* sums) {
    const auto add = rows == 6   ? Add<Kind, 6>
                     : rows == 4 ? Add<Kind, 4>
                                 : Add<Kind, 2>;
    add(panel, x, steps, ahead, sums);
  }

  template <class Kind, int R>
  __attribute__((noinline)) static void Add(const PanelOf<Kind>& panel,
                                            const uint8_t* x, int64_t steps,
                                            const WeightsAhead<kVectors>& ahead,
                                            float* sums) {
    constexpr int kTilesOfHalf = kTiles / Kind::kHalves;
    constexpr int kRows = PanelOf<Kind>::kRows;
    Zmm::Floats y[kVectors][R];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        y[v][r] = _mm512_load_ps(sums + r * kRows + v * kVectorRows);
      }
    }
    for (int64_t s = 0; s < steps; ++s) {
      ahead.Ask(s);
      const uint8_t* factors = x + R * kStep;
#pragma GCC unroll 2
      for (int half = 0; half < Kind::kHalves; ++half) {
        Zmm::Bytes products[kVectors][R];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          products[0][r] = products[1][r] =
              Kind::kSigned ? Zmm::SetFour(factors + r * kFactorsBytes +
                                           offsetof(StepFactors, start))
                            : Zmm::NoInts();
        }
#pragma GCC unroll 8
        for (int t = half * kTilesOfHalf; t < (half + 1) * kTilesOfHalf; ++t) {
          const uint8_t* codes = panel.codes[s][0] + t * kVectorBytes;
          const Zmm::Bytes w0 = _mm512_load_si512(codes);
          const Zmm::Bytes w1 =
              _mm512_load_si512(codes + kTiles * kVectorBytes);
#pragma GCC unroll 6
          for (int r = 0; r < R; ++r) {
            const Zmm::Bytes four = Zmm::SetFour(x + kStep * r + 4 * t);
            products[0][r] = Zmm::Dot(products[0][r], w0, four);
            products[1][r] = Zmm::Dot(products[1][r], w1, four);
          }
        }
        const int64_t i = s * Kind::kHalves + half;
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          const float* min = Kind::kHasMin ? panel.min[i] : nullptr;
          AddProducts<Kind, R>(panel.scale[i] + v * kVectorRows,
                               min + v * kVectorRows, factors, half, y[v],
                               [&](int r) { return products[v][r]; });
        }
      }
      x += R * kStepRowBytes;
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        _mm512_store_ps(sums + r * kRows + v * kVectorRows, y[v][r]);
      }
    }
  }
};

template <class F>
void RunRows(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  const auto run =
      params.x.rows() < kPanelFrom ? Run<Zmm, F> : RunPanels<Dots, F>;
  run(desc, params, pool);
}

struct Format {
  DType dtype;
  void (*run)(const GemmDesc&, const GemmParams&, ThreadPool&);
};

template <class... F>
constexpr std::array<Format, sizeof...(F)> Formats(FormatList<F...>) {
  return {Format{F::kDType, RunRows<F>}...};
}
constexpr auto kFormats = Formats(IntegerFormats());

}  // namespace
}  // namespace inlay::packed::INLAY_PACKED_ISA
HWY_POP_ATTRIBUTES

namespace inlay {
namespace {

const packed::vnni::Format* FindFormat(DType dtype) {
  for (const packed::vnni::Format& format : packed::vnni::kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

}  // namespace

const char* GemmCpuPackedRefuses(const GemmDesc& desc);  // gemm_cpu_packed.cc

const char* GemmCpuPackedVnniRefuses(const GemmDesc& desc) {
  if (const char* reason = GemmCpuPackedRefuses(desc); reason != nullptr) {
    return reason;
  }
  if (!__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512vnni")) {
    return "needs AVX-512 with VNNI";
  }
  return FindFormat(desc.weight) == nullptr
             ? "weights must be of a format that is multiplied as integers"
             : nullptr;
}

absl::Status RunGemmCpuPackedVnni(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream) {
  FindFormat(desc.weight)->run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
