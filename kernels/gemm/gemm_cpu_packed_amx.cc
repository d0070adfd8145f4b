// gemm over quantised weights, on x86-64 with AMX: products of bytes by tiles,
// for many rows of x. Weights lie as gemm_cpu_packed.cc has them: tiles of two
// strips side by side are what the unit takes as its right operand. Sums of a
// block are exact, and blocks are added in the same order by the same
// operations: the same bits, so that rows that fill no group of 16 are left to
// gemm_cpu_packed_vnni.cc, and so are formats with scales of 16 elements: twice
// the sums of half the products take twice its time.
//
// A step of a group is one product of tiles, 8,192 multiply-adds, whose sums go
// through memory into 16 vectors: 3 or 4 instructions each, 48 to 64 in all,
// which bound it; the products of the next step are under way meanwhile. VNNI
// takes 176 and more for the same.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include "kernels/gemm/amx.h"
#include "kernels/gemm/gemm_parts.h"
#include "kernels/gemm/packed/includes.h"
#include "memory/status.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own intrinsics, which leave unused operands undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define INLAY_PACKED_ISA amx_i8
#define INLAY_PACKED_VNNI 1
#define INLAY_PACKED_DOT256 _mm256_dpbusd_epi32
HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")
#include "kernels/gemm/packed/panel-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {
namespace {

constexpr int kGroupRows = amx::kTileRows;  // of x
constexpr int64_t kGroupSums = kGroupRows * kVectorRows<Zmm>;
constexpr int64_t kGroupStepBytes = kGroupRows * kStepRowBytes;
static_assert(kVectorBytes<Zmm> == amx::kTileBytes);

// The products of step `s` of the panel with a group at `x`.
template <class Kind>
INLAY_INLINE void Multiply(const Panel<Zmm, Kind, 1>& panel, const uint8_t* x,
                           int64_t s, int32_t* products) {
  _tile_zero(0);
  _tile_loadd(1, x + s * kGroupStepBytes, kStep);
  _tile_loadd(2, panel.codes[s][0], amx::kTileBytes);
  if constexpr (Kind::kMost == 0) {
    _tile_dpbssd(0, 1, 2);
  } else {
    _tile_dpbsud(0, 1, 2);
  }
  _tile_stored(0, products, amx::kTileBytes);
  amx::Written(products);
}

struct Tiles {
  template <class F>
  using KindOf = PanelKind<1, F::kHasMin, F::kMost == 0 ? 0 : 255>;
  using Vector = Zmm;
  static constexpr int kVectors = 1;
  static constexpr int kGroupRows = amx::kTileRows;
  static constexpr bool kUnsigned = false;
  static constexpr int64_t kXBytes = 768 << 10;

  static int RowsOfGroup(int) { return kGroupRows; }
  static void Start() {
    amx::TileShapes shapes;
    shapes.Set(0, kGroupRows, amx::kTileBytes);
    shapes.Set(1, kGroupRows, kStep);
    shapes.Set(2, kTiles, amx::kTileBytes);
    amx::Written(&shapes);
    _tile_loadconfig(&shapes);
  }
  static void End() { _tile_release(); }
  static void Written(const void* data) { amx::Written(data); }

  template <class Kind>
  static void AddSteps(const Panel<Zmm, Kind, 1>& panel, const uint8_t* x, int,
                       int64_t steps, const WeightsAhead<Zmm::kStrips>& ahead,
                       float* sums) {
    alignas(64) int32_t products[2][kGroupSums];
    Zmm::Floats y[kGroupRows];
#pragma GCC unroll 16
    for (int r = 0; r < kGroupRows; ++r) {
      y[r] = _mm512_load_ps(sums + r * kVectorRows<Zmm>);
    }
    Multiply(panel, x, 0, products[0]);
    for (int64_t s = 0; s < steps; ++s) {
      if (s + 1 < steps) Multiply(panel, x, s + 1, products[(s + 1) % 2]);
      ahead.Ask(s);
      const int32_t* of_step = products[s % 2];
      AddProducts<Zmm, Kind, kGroupRows>(
          panel.scale[s], Kind::kHasMin ? panel.min[s] : nullptr,
          x + s * kGroupStepBytes + kGroupRows * kStep, 0, y, [&](int r) {
            return _mm512_load_si512(of_step + r * kVectorRows<Zmm>);
          });
    }
#pragma GCC unroll 16
    for (int r = 0; r < kGroupRows; ++r) {
      _mm512_store_ps(sums + r * kVectorRows<Zmm>, y[r]);
    }
  }
};

using RunFn = void (*)(const GemmDesc&, const GemmParams&, ThreadPool&);

template <class F>
constexpr RunFn RunOf() {
  if constexpr (F::kHalves == 1) {
    return RunPanels<Tiles, F>;
  } else {
    return nullptr;
  }
}

// Null: left to VNNI.
template <class... F>
RunFn FindRun(FormatList<F...>, DType dtype) {
  RunFn run = nullptr;
  ((run = F::kDType == dtype ? RunOf<F>() : run), ...);
  return run;
}

}  // namespace
}  // namespace inlay::packed::INLAY_PACKED_ISA
HWY_POP_ATTRIBUTES

namespace inlay {

// gemm_cpu_packed_vnni.cc
const char* GemmCpuPackedVnniRefuses(const GemmDesc& desc);
absl::Status RunGemmCpuPackedVnni(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream);

const char* GemmCpuPackedAmxRefuses(const GemmDesc& desc) {
  if (const char* reason = GemmCpuPackedVnniRefuses(desc); reason != nullptr) {
    return reason;
  }
  return amx::Refuses(amx::Products::kI8);
}

absl::Status RunGemmCpuPackedAmx(const GemmDesc& desc, const GemmParams& params,
                                 Stream& stream) {
  using namespace packed::amx_i8;
  const RunFn run = FindRun(IntegerFormats(), desc.weight);
  if (run == nullptr) return RunGemmCpuPackedVnni(desc, params, stream);
  const int64_t rest = params.x.rows() % kGroupRows;
  const int64_t whole = params.x.rows() - rest;
  if (rest > 0) {
    INLAY_RETURN_IF_ERROR(
        RunGemmCpuPackedVnni(desc, RowsOfCall(params, whole, rest), stream));
  }
  if (whole > 0) {
    run(desc, RowsOfCall(params, 0, whole), *stream.thread_pool());
  }
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
