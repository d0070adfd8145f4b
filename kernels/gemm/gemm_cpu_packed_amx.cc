// gemm over quantised weights, on x86-64 with AMX: products of bytes by tiles,
// for many rows of x. Weights lie as gemm_cpu_packed.cc has them: tiles of two
// strips side by side are what the unit takes as its right operand. Sums of a
// block are exact, and blocks are added in the same order by the same
// operations: the same bits, so that rows that fill no group of 16 are left to
// gemm_cpu_packed_vnni.cc.
//
// A pair of strips by kBlockSteps is unpacked into L1, codes as bytes and
// factors as floats, and groups of 16 rows of x pass over it. A step of a group
// is one product of tiles, 8,192 multiply-adds, whose sums go through memory
// into 16 vectors: 3 or 4 instructions each, 48 to 64 in all, which bound it;
// the products of the next step are under way meanwhile. VNNI takes 176 and
// more for the same.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <array>

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

// Half `i` of the panel's halves of steps: products with a group at `x`.
template <class Kind>
INLAY_INLINE void Multiply(const Panel<Zmm, Kind, 1>& panel, const uint8_t* x,
                           int64_t i, int32_t* products) {
  const int64_t step = i / Kind::kHalves;
  const int64_t half = i % Kind::kHalves;
  _tile_zero(0);
  _tile_loadd(1, x + step * kGroupStepBytes + half * kStep / 2, kStep);
  _tile_loadd(2, panel.codes[step][0] + half * kTiles / 2 * amx::kTileBytes,
              amx::kTileBytes);
  if constexpr (Kind::kSigned) {
    _tile_dpbssd(0, 1, 2);
  } else {
    _tile_dpbsud(0, 1, 2);
  }
  _tile_stored(0, products, amx::kTileBytes);
  amx::Written(products);
}

struct Tiles {
  using Vector = Zmm;
  static constexpr int kVectors = 1;
  static constexpr int kGroupRows = amx::kTileRows;
  static constexpr bool kUnsigned = false;

  static int RowsOfGroup(int) { return kGroupRows; }
  template <class F>
  static void Start() {
    amx::TileShapes shapes;
    shapes.Set(0, kGroupRows, amx::kTileBytes);
    shapes.Set(1, kGroupRows, kStep / F::kHalves);
    shapes.Set(2, kTiles / F::kHalves, amx::kTileBytes);
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
    const int64_t halves = steps * Kind::kHalves;
    Multiply(panel, x, 0, products[0]);
    for (int64_t i = 0; i < halves; ++i) {
      if (i + 1 < halves) Multiply(panel, x, i + 1, products[(i + 1) % 2]);
      if (i % Kind::kHalves == 0) ahead.Ask(i / Kind::kHalves);
      const int32_t* of_step = products[i % 2];
      AddProducts<Zmm, Kind, kGroupRows>(
          panel.scale[i], Kind::kHasMin ? panel.min[i] : nullptr,
          x + i / Kind::kHalves * kGroupStepBytes + kGroupRows * kStep,
          static_cast<int>(i % Kind::kHalves), y, [&](int r) {
            return _mm512_load_si512(of_step + r * kVectorRows<Zmm>);
          });
    }
#pragma GCC unroll 16
    for (int r = 0; r < kGroupRows; ++r) {
      _mm512_store_ps(sums + r * kVectorRows<Zmm>, y[r]);
    }
  }
};

struct Format {
  DType dtype;
  void (*run)(const GemmDesc&, const GemmParams&, ThreadPool&);
};

template <class... F>
constexpr std::array<Format, sizeof...(F)> Formats(FormatList<F...>) {
  return {Format{F::kDType, RunPanels<Tiles, F>}...};
}
constexpr auto kFormats = Formats(IntegerFormats());

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
  const int64_t rest = params.x.rows() % packed::amx_i8::kGroupRows;
  const int64_t whole = params.x.rows() - rest;
  if (rest > 0) {
    INLAY_RETURN_IF_ERROR(
        RunGemmCpuPackedVnni(desc, RowsOfCall(params, whole, rest), stream));
  }
  if (whole == 0) return absl::OkStatus();
  for (const packed::amx_i8::Format& format : packed::amx_i8::kFormats) {
    if (format.dtype == desc.weight) {
      format.run(desc, RowsOfCall(params, 0, whole), *stream.thread_pool());
    }
  }
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
