// gemm over quantised weights, on x86-64 with AVX-512 and its dot products of
// bytes (VNNI). Weights and rounded activations lie as gemm_cpu_packed.cc has
// them, so that the layout does not depend on the machine's best row; a vector
// holds two strips. Sums of a block are exact and blocks are added in the same
// order by the same operations: the same bits.
//
// A step of two strips costs a row of x 8 dot products and 3 or 4 more
// instructions on vectors: 512 products for 12, where AVX2 takes 22 for 256.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include "kernels/gemm/packed/includes.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own intrinsics, which leave unused operands undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define INLAY_PACKED_ISA vnni
#define INLAY_PACKED_VNNI 1
#define INLAY_PACKED_DOT256 _mm256_dpbusd_epi32
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")
#include "kernels/gemm/packed/dots-inl.h"
#include "kernels/gemm/packed/f8-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {
namespace {

template <class F>
constexpr DotsFormat Floats() {
  return {F::kDType, RunF8<ZmmF8, F>};
}
constexpr auto kFormats =
    DotsFormats<Zmm, 2>(IntegerFormats(), Floats<F8<DType::kF8_G32, 32>>(),
                        Floats<F8<DType::kF8_G128, 128>>());

}  // namespace
}  // namespace inlay::packed::INLAY_PACKED_ISA
HWY_POP_ATTRIBUTES

namespace inlay {

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
  return packed::vnni::FindDots(packed::vnni::kFormats, desc.weight) == nullptr
             ? "weights must be of a format that is multiplied as integers"
             : nullptr;
}

absl::Status RunGemmCpuPackedVnni(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream) {
  packed::vnni::FindDots(packed::vnni::kFormats, desc.weight)
      ->run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
