// gemm over quantised weights, on x86-64 with AVX2: weights interleaved at load
// time (packed/layout.h), activations rounded to 8 bits a block of 32, integer
// dot products. Sources: the idea of integer block products is ggml's (its Q8
// activations); layout and kernels are our own.
//
// y[m, n] = sum over steps of 32 (or halves of 16) elements, in ascending
// order:
//   y = fma(isum, scale_w * scale_x, y);  y = fma(min_w, sum_x, y)
// isum is the exact integer sum of code_w * code_x, sum_x that of scale_x *
// code_x. So an output depends on its row of x and of w alone, bit for bit,
// whatever the tile.
//
// Tile: 1 to 4 rows of x with a strip of 8 rows of w. A step of 4-bit codes
// costs a row of x 8 multiply-adds of 32 bytes, whose 16-bit sums take all of
// them without overflow (8 * 2 * 15 * 127 < 2^15), and 10 more instructions; so
// about 12 products an instruction, where float32 has 8. With one row of x the
// strip streams from memory; with many, blocks of x stay in L2 and strips pass
// through L1.
#include "kernels/gemm/gemm.h"
#include "kernels/quant/quant.h"

#if defined(__x86_64__)
#include <hwy/targets.h>
#include <immintrin.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/gemm/packed/layout.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fp4.h"
#include "kernels/quant/grouped.h"
#include "kernels/quant/iq1_m/iq1_m.h"
#include "kernels/quant/iq1_s/iq1_s.h"
#include "kernels/quant/iq2_s/iq2_s.h"
#include "kernels/quant/iq2_xs/iq2_xs.h"
#include "kernels/quant/iq2_xxs/iq2_xxs.h"
#include "kernels/quant/iq3_s/iq3_s.h"
#include "kernels/quant/iq3_xxs/iq3_xxs.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/iq4_nl/iq4_nl.h"
#include "kernels/quant/iq4_xs/iq4_xs.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant/mxfp4/mxfp4.h"
#include "kernels/quant/nvfp4/nvfp4.h"
#include "kernels/quant/q2_k/q2_k.h"
#include "kernels/quant/q3_k/q3_k.h"
#include "kernels/quant/q4_0/q4_0.h"
#include "kernels/quant/q4_1/q4_1.h"
#include "kernels/quant/q4_k/q4_k.h"
#include "kernels/quant/q5_0/q5_0.h"
#include "kernels/quant/q5_1/q5_1.h"
#include "kernels/quant/q5_k/q5_k.h"
#include "kernels/quant/q6_k/q6_k.h"
#include "kernels/quant/q8_0/q8_0.h"
#include "kernels/quant/super_block.h"
#include "kernels/quant/tq1_0/tq1_0.h"
#include "kernels/quant/tq2_0/tq2_0.h"
#include "memory/device/thread_pool.h"

// Everything above is compiled for the baseline: what it defines inline may be
// taken by other files.
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
#include "kernels/gemm/packed/activations-inl.h"
#include "kernels/gemm/packed/f8-inl.h"
#include "kernels/gemm/packed/formats-inl.h"
#include "kernels/gemm/packed/levels-inl.h"
#include "kernels/gemm/packed/tile-inl.h"

namespace inlay::packed {
namespace {

// Of x: what one thread keeps in L2 while strips pass.
constexpr int64_t kBlockBytes = 256 << 10;
// Below this many bytes of weights a thread costs more than it brings.
constexpr int64_t kGrainBytes = 32 << 10;

// The rows of x that begin at m, a multiple of kMaxRows.
struct Group {
  int64_t m;
  int rows;
  uint8_t* rounded;

  Group(const GemmDesc& desc, const GemmParams& params, int64_t first)
      : m(first),
        rows(static_cast<int>(
            std::min<int64_t>(params.x.rows() - first, kMaxRows))),
        rounded(static_cast<uint8_t*>(params.workspace) +
                first * RoundedRowBytes(desc.k)) {}
};

// y[m .. m + rows, n0 .. ) from the sums of a tile.
void Finish(const GemmDesc& desc, const GemmParams& params, int64_t m, int rows,
            int64_t n0, const float* sums) {
  const int64_t count = std::min<int64_t>(kStripRows, desc.n - n0);
  for (int r = 0; r < rows; ++r, sums += kStripRows) {
    float* y = params.y.row<float>(m + r) + n0;
    const float* residual = params.residual.empty()
                                ? nullptr
                                : params.residual.row<float>(m + r) + n0;
    for (int64_t i = 0; i < count; ++i) {
      float value = sums[i];
      if (params.bias != nullptr) value += params.bias[n0 + i];
      if (residual != nullptr) value += residual[i];
      y[i] = value;
    }
  }
}

void RoundRows(const GemmDesc& desc, const GemmParams& params,
               ThreadPool& pool) {
  pool.ParallelFor(params.x.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const int64_t first = m / kMaxRows * kMaxRows;
      const Group group(desc, params, first);
      RoundRow(params.x.row<float>(m), params.permutation, desc.k,
               static_cast<int>(m - first), group.rows, group.rounded);
    }
  });
}

template <class F>
void Run(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  using TileFn = void (*)(const uint8_t*, const uint8_t*, int64_t, float*);
  constexpr TileFn kTileOf[kMaxRows] = {Tile<F, 1>, Tile<F, 2>, Tile<F, 3>,
                                        Tile<F, 4>};
  RoundRows(desc, params, pool);
  const int64_t rows = params.x.rows();
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const int64_t block_rows = std::max<int64_t>(
      kMaxRows, kBlockBytes / RoundedRowBytes(desc.k) / kMaxRows * kMaxRows);
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  for (int64_t m0 = 0; m0 < rows; m0 += block_rows) {
    const int64_t m1 = std::min(rows, m0 + block_rows);
    pool.ParallelFor(
        strips, kGrainBytes / StripBytes<F>(desc.k) + 1,
        [&](int64_t begin, int64_t end) {
          alignas(32) float sums[kMaxRows * kStripRows];
          for (int64_t strip = begin; strip < end; ++strip) {
            for (int64_t m = m0; m < m1; m += kMaxRows) {
              const Group group(desc, params, m);
              kTileOf[group.rows - 1](w + strip * StripBytes<F>(desc.k),
                                      group.rounded, desc.k, sums);
              Finish(desc, params, m, group.rows, strip * kStripRows, sums);
            }
          }
        });
  }
}

// Few rows of x as they are: what is wide in registers serves two.
template <class F>
void RunF8(const GemmDesc& desc, const GemmParams& params, ThreadPool& pool) {
  constexpr int kF8Rows = 2;
  const int64_t rows = params.x.rows();
  const int64_t strips = (desc.n + kStripRows - 1) / kStripRows;
  const auto x_stride =
      static_cast<int64_t>(params.x.row_stride_bytes / sizeof(float));
  const auto* w = reinterpret_cast<const uint8_t*>(params.w.data);
  pool.ParallelFor(
      strips, kGrainBytes / StripBytes<F>(desc.k) + 1,
      [&](int64_t begin, int64_t end) {
        alignas(32) float sums[kF8Rows * kStripRows];
        for (int64_t strip = begin; strip < end; ++strip) {
          const uint8_t* of_strip = w + strip * StripBytes<F>(desc.k);
          for (int64_t m = 0; m < rows; m += kF8Rows) {
            const bool both = m + 1 < rows;
            const float* x = params.x.row<float>(m);
            if (both) {
              F8Tile<F, 2>(of_strip, x, x_stride, desc.k, sums);
            } else {
              F8Tile<F, 1>(of_strip, x, x_stride, desc.k, sums);
            }
            Finish(desc, params, m, both ? 2 : 1, strip * kStripRows, sums);
          }
        }
      });
}

template <class F>
size_t Bytes(const GemmDesc& desc) {
  return static_cast<size_t>((desc.n + kStripRows - 1) / kStripRows *
                             StripBytes<F>(desc.k));
}

template <class F>
void Pack(const GemmDesc& desc, const std::byte* rows, int64_t first,
          int64_t count, std::byte* packed) {
  const FormatInfo& format = GetFormatInfo(F::kDType);
  const int64_t blocks = desc.k / format.block_elements;
  const int64_t block_bytes = F::kHeader + F::kSteps * StepBytes<F>();
  for (int64_t n = 0; n < count; n += kStripRows) {
    uint8_t* strip = reinterpret_cast<uint8_t*>(packed) +
                     (first + n) / kStripRows * StripBytes<F>(desc.k);
    std::memset(strip, 0, static_cast<size_t>(StripBytes<F>(desc.k)));
    const int64_t in_strip = std::min<int64_t>(kStripRows, count - n);
    for (int64_t r = 0; r < in_strip; ++r) {
      const std::byte* src = rows + (n + r) * blocks * format.block_bytes;
      for (int64_t b = 0; b < blocks; ++b) {
        uint8_t* header = strip + b * block_bytes;
        F::Pack(src + b * format.block_bytes, static_cast<int>(r), header,
                header + F::kHeader);
      }
    }
  }
}

struct Format {
  DType dtype;
  WeightPacking<GemmDesc> packing;
  void (*run)(const GemmDesc&, const GemmParams&, ThreadPool&);
  bool rounds;  // activations to 8 bits, where a permutation costs nothing
};

template <class F>
constexpr Format kFormat = {
    F::kDType, {kStripRows, Bytes<F>, Pack<F>}, Run<F>, true};
template <class F>
constexpr Format kF8Format = {
    F::kDType, {kStripRows, Bytes<F>, Pack<F>}, RunF8<F>, false};

constexpr const Format* kFormats[] = {
    &kFormat<Q4_0>,
    &kFormat<Q4_1>,
    &kFormat<Q5_0>,
    &kFormat<Q5_1>,
    &kFormat<Q8_0>,
    &kFormat<Q2_K>,
    &kFormat<Q3_K>,
    &kFormat<Q4_K>,
    &kFormat<Q5_K>,
    &kFormat<Q6_K>,
    &kFormat<IQ4_NL>,
    &kFormat<IQ4_XS>,
    &kFormat<IQ2_XXS>,
    &kFormat<IQ2Of16<DType::kIQ2_XS, IQ2_XSBlock>>,
    &kFormat<IQ2Of16<DType::kIQ2_S, IQ2_SBlock>>,
    &kFormat<IQ3_XXS>,
    &kFormat<IQ3_S>,
    &kFormat<IQ1_S>,
    &kFormat<IQ1_M>,
    &kFormat<MXFP4>,
    &kFormat<NVFP4>,
    &kFormat<Ternary<DType::kTQ1_0, TQ1_0Block>>,
    &kFormat<Ternary<DType::kTQ2_0, TQ2_0Block>>,
    &kFormat<U4<DType::kU4_G32, 1>>,
    &kFormat<U4<DType::kU4_G128, 4>>,
    &kFormat<I8<DType::kI8_G32, 1>>,
    &kFormat<I8<DType::kI8_G128, 4>>,
    &kF8Format<F8<DType::kF8_G32, 32>>,
    &kF8Format<F8<DType::kF8_G128, 128>>,
};

}  // namespace
}  // namespace inlay::packed
HWY_POP_ATTRIBUTES

namespace inlay {
namespace {

const packed::Format* FindFormat(DType dtype) {
  for (const packed::Format* format : packed::kFormats) {
    if (format->dtype == dtype) return format;
  }
  return nullptr;
}

}  // namespace

const char* GemmCpuPackedRefuses(const GemmDesc& desc) {
  if (desc.activation != DType::kF32 || desc.output != DType::kF32) {
    return "activations must be f32";
  }
  if ((hwy::SupportedTargets() & HWY_AVX2) == 0) return "needs AVX2";
  const packed::Format* format = FindFormat(desc.weight);
  if (format == nullptr) {
    return "weights must be of a format that has a packed layout";
  }
  if (desc.permuted && !format->rounds) {
    return "takes no permutation of x for this format";
  }
  if (desc.k % GetFormatInfo(desc.weight).block_elements != 0) {
    return "k must be a multiple of the format's block";
  }
  return nullptr;
}

const WeightPacking<GemmDesc>* GemmCpuPacking(const GemmDesc& desc) {
  return &FindFormat(desc.weight)->packing;
}

size_t GemmCpuPackedWorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  return FindFormat(desc.weight)->rounds
             ? static_cast<size_t>(max_rows * packed::RoundedRowBytes(desc.k))
             : 0;
}

absl::Status RunGemmCpuPacked(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream) {
  FindFormat(desc.weight)->run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
