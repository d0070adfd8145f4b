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
// One or two rows of x pass over strips of 8 rows of w as they stream from
// memory; for more, weights are unpacked once for a block of rows
// (packed/panel-inl.h). f8 has a way of its own (packed/f8-inl.h).
// A step of 4-bit codes costs a row of x 8 multiply-adds of 32 bytes, whose
// 16-bit sums take all of them without overflow (8 * 2 * 15 * 127 < 2^15), and
// 14 more instructions for 256 products.
#include "kernels/gemm/gemm.h"
#include "kernels/quant/quant.h"

#if defined(__x86_64__)
#include <hwy/targets.h>

#include <array>

#include "kernels/gemm/packed/includes.h"

#define INLAY_PACKED_ISA avx2
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
#include "kernels/gemm/packed/f8-inl.h"
#include "kernels/gemm/packed/sums-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {
namespace {

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
constexpr Format Integers() {
  return {F::kDType, {kStripRows, Bytes<F>, Pack<F>}, RunRows<Sums, F>, true};
}
template <class F>
constexpr Format Floats() {
  return {F::kDType, {kStripRows, Bytes<F>, Pack<F>}, RunF8<YmmF8, F>, false};
}

template <class... F>
constexpr auto Formats(FormatList<F...>) {
  return std::to_array<Format>({Integers<F>()...,
                                Floats<F8<DType::kF8_G32, 32>>(),
                                Floats<F8<DType::kF8_G128, 128>>()});
}
constexpr auto kFormats = Formats(IntegerFormats());

const Format* FindFormat(DType dtype) {
  for (const Format& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

}  // namespace
}  // namespace inlay::packed::INLAY_PACKED_ISA
HWY_POP_ATTRIBUTES

namespace inlay {

using packed::avx2::FindFormat;

const char* GemmCpuPackedRefuses(const GemmDesc& desc) {
  if (desc.activation != DType::kF32 || desc.output != DType::kF32) {
    return "activations must be f32";
  }
  if ((hwy::SupportedTargets() & HWY_AVX2) == 0) return "needs AVX2";
  const auto* format = FindFormat(desc.weight);
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
  constexpr int64_t kUnit = packed::kRowsUnit;
  const int64_t rows = (max_rows + kUnit - 1) / kUnit * kUnit;
  return FindFormat(desc.weight)->rounds
             ? static_cast<size_t>(rows * packed::avx2::RoundedRowBytes(desc.k))
             : 0;
}

absl::Status RunGemmCpuPacked(const GemmDesc& desc, const GemmParams& params,
                              Stream& stream) {
  FindFormat(desc.weight)->run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
