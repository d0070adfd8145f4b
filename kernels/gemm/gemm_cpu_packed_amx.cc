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
HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")
#include "kernels/gemm/packed/run-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {
namespace {

constexpr int kGroupRows = amx::kTileRows;            // of x
constexpr int kPairRows = Zmm::kStrips * kStripRows;  // of w
constexpr int64_t kGroupSums = kGroupRows * kPairRows;
constexpr int64_t kGroupStepBytes = kGroupRows * kStepRowBytes;
constexpr int64_t kBlockSteps = 32;
// Of x at a time: what stays in L2, and the sums of so many fit a stack.
constexpr int64_t kXBytes = 768 << 10;
constexpr int64_t kBlockGroups = 64;

constexpr int64_t GroupBytes(int64_t k) {
  return kGroupRows * RoundedRowBytes(k);
}

// kBlockSteps of a pair of strips.
template <class F>
struct Panel {
  alignas(64) uint8_t codes[kBlockSteps][kTiles * amx::kTileBytes];
  alignas(64) float scale[kBlockSteps * F::kHalves][kPairRows];
  alignas(64) float min[kBlockSteps * F::kHalves][kPairRows];
};

template <class F, int t>
INLAY_INLINE void UnpackTiles(Zmm::At codes, uint8_t* to) {
  _mm512_store_si512(to + t * amx::kTileBytes, F::template Tile<Zmm, t>(codes));
  if constexpr (t + 1 < kTiles) UnpackTiles<F, t + 1>(codes, to);
}

// `steps` steps at `at`, whole blocks; returns where the next ones are.
template <class F>
Zmm::At Unpack(Zmm::At at, int64_t steps, Panel<F>& panel) {
  for (int64_t block = 0; block < steps; block += F::kSteps) {
    const Zmm::Header<F> header(at);
    at = at + F::kHeader;
    for (int64_t s = block; s < block + F::kSteps; ++s) {
      UnpackTiles<F, 0>(at + F::kScales, panel.codes[s]);
      for (int half = 0; half < F::kHalves; ++half) {
        Zmm::Floats scale, min = Zmm::NoFloats();
        Zmm::Factors<F>(header, at, half, &scale, &min);
        Zmm::Store(panel.scale[s * F::kHalves + half], scale);
        Zmm::Store(panel.min[s * F::kHalves + half], min);
      }
      at = at + StepBytes<F>();
    }
  }
  amx::Written(&panel);
  return at;
}

// Half `i` of the panel's halves of steps: products with a group at `x`.
template <class F>
INLAY_INLINE void Multiply(const Panel<F>& panel, const uint8_t* x, int64_t i,
                           int32_t* products) {
  const int64_t step = i / F::kHalves;
  const int64_t half = i % F::kHalves;
  _tile_zero(0);
  _tile_loadd(1, x + step * kGroupStepBytes + half * kStep / 2, kStep);
  _tile_loadd(2, panel.codes[step] + half * kTiles / 2 * amx::kTileBytes,
              amx::kTileBytes);
  if constexpr (F::kMost == 0) {
    _tile_dpbssd(0, 1, 2);
  } else {
    _tile_dpbsud(0, 1, 2);
  }
  _tile_stored(0, products, amx::kTileBytes);
  amx::Written(products);
}

// Adds `steps` steps with those of a group at `x` to its sums.
template <class F>
void AddSteps(const Panel<F>& panel, const uint8_t* x, int64_t steps,
              float* sums) {
  alignas(64) int32_t products[2][kGroupSums];
  Zmm::Floats y[kGroupRows];
#pragma GCC unroll 16
  for (int r = 0; r < kGroupRows; ++r) {
    y[r] = _mm512_load_ps(sums + r * kPairRows);
  }
  const int64_t halves = steps * F::kHalves;
  Multiply<F>(panel, x, 0, products[0]);
  for (int64_t i = 0; i < halves; ++i) {
    if (i + 1 < halves) Multiply<F>(panel, x, i + 1, products[(i + 1) % 2]);
    const int32_t* of_step = products[i % 2];
    const uint8_t* factors =
        x + i / F::kHalves * kGroupStepBytes + kGroupRows * kStep;
    const Zmm::Floats scale = _mm512_load_ps(panel.scale[i]);
    constexpr size_t kScale = offsetof(StepFactors, scale);
#pragma GCC unroll 16
    for (int r = 0; r < kGroupRows; ++r) {
      y[r] = Zmm::MulAdd(
          Zmm::FromInts(_mm512_load_si512(of_step + r * kPairRows)),
          Zmm::Mul(scale, Zmm::Set(FactorAt(factors, r, kScale))), y[r]);
    }
    if constexpr (F::kHasMin) {
      const size_t sum = offsetof(StepFactors, sums) +
                         sizeof(float) * static_cast<size_t>(i % F::kHalves);
      const Zmm::Floats min = _mm512_load_ps(panel.min[i]);
#pragma GCC unroll 16
      for (int r = 0; r < kGroupRows; ++r) {
        y[r] = Zmm::MulAdd(min, Zmm::Set(FactorAt(factors, r, sum)), y[r]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kGroupRows; ++r) {
    _mm512_store_ps(sums + r * kPairRows, y[r]);
  }
}

// Pairs of strips [begin, end) with groups [g0, g1), at most kBlockGroups.
template <class F>
void RunPairs(const GemmDesc& desc, const GemmParams& params, int64_t begin,
              int64_t end, int64_t g0, int64_t g1) {
  Panel<F> panel;
  alignas(64) float sums[kBlockGroups][kGroupSums];
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  const auto* x = static_cast<const uint8_t*>(params.workspace);
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const int64_t all = desc.k / kStep;
  amx::TileShapes shapes;
  shapes.Set(0, kGroupRows, amx::kTileBytes);
  shapes.Set(1, kGroupRows, kStep / F::kHalves);
  shapes.Set(2, kTiles / F::kHalves, amx::kTileBytes);
  amx::Written(&shapes);
  _tile_loadconfig(&shapes);
  for (int64_t pair = begin; pair < end; ++pair) {
    const int64_t strip = pair * Zmm::kStrips;
    std::fill(sums[0], sums[g1 - g0], 0.0f);
    // A strip that is left over stands for two.
    auto at = Zmm::Strips(w + strip * StripBytes<F>(desc.k),
                          strip + 1 < strips ? StripBytes<F>(desc.k) : 0);
    for (int64_t step = 0; step < all; step += kBlockSteps) {
      const int64_t steps = std::min(kBlockSteps, all - step);
      at = Unpack<F>(at, steps, panel);
      for (int64_t g = g0; g < g1; ++g) {
        AddSteps<F>(panel, x + g * GroupBytes(desc.k) + step * kGroupStepBytes,
                    steps, sums[g - g0]);
      }
    }
    for (int64_t g = g0; g < g1; ++g) {
      FinishTile(desc, params, g * kGroupRows, kGroupRows, pair * kPairRows,
                 kPairRows, kPairRows, sums[g - g0]);
    }
  }
  _tile_release();
}

// x: whole groups.
template <class F>
void RunTiles(const GemmDesc& desc, const GemmParams& params,
              ThreadPool& pool) {
  auto* x = static_cast<uint8_t*>(params.workspace);
  const int64_t groups = params.x.rows() / kGroupRows;
  pool.ParallelFor(params.x.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      RoundRow(params.x.row<float>(m), params.permutation, desc.k,
               static_cast<int>(m % kGroupRows), kGroupRows, F::kHalves,
               x + m / kGroupRows * GroupBytes(desc.k));
    }
    amx::Written(x);
  });
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const int64_t pairs = (strips + Zmm::kStrips - 1) / Zmm::kStrips;
  const int64_t block =
      std::clamp<int64_t>(kXBytes / GroupBytes(desc.k), 1, kBlockGroups);
  for (int64_t g0 = 0; g0 < groups; g0 += block) {
    pool.ParallelFor(pairs,
                     kGrainBytes / (Zmm::kStrips * StripBytes<F>(desc.k)) + 1,
                     [&](int64_t begin, int64_t end) {
                       RunPairs<F>(desc, params, begin, end, g0,
                                   std::min(groups, g0 + block));
                     });
  }
}

struct Format {
  DType dtype;
  void (*run)(const GemmDesc&, const GemmParams&, ThreadPool&);
};

template <class... F>
constexpr std::array<Format, sizeof...(F)> Formats(FormatList<F...>) {
  return {Format{F::kDType, RunTiles<F>}...};
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
