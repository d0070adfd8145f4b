// gemm over quantised weights, on x86-64 with AVX-VNNI: the dot products of
// bytes of gemm_cpu_packed_vnni.cc for processors that have no AVX-512, as
// Intel's for desktops and laptops since 2021. The same layouts and bits.
//
// 16 registers: six have sums of products, six those of steps.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include "kernels/gemm/packed/includes.h"

#define INLAY_PACKED_ISA avx_vnni
#define INLAY_PACKED_DOT256 _mm256_dpbusd_avx_epi32
HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")
#include "kernels/gemm/packed/dots-inl.h"

namespace inlay::packed::INLAY_PACKED_ISA {
namespace {

constexpr auto kFormats = DotsFormats<Ymm, 1>(IntegerFormats());

}  // namespace
}  // namespace inlay::packed::INLAY_PACKED_ISA
HWY_POP_ATTRIBUTES

namespace inlay {
namespace {

// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID
// leaf 7, sub-leaf 1.
bool HasAvxVnni() {
  constexpr uint32_t kBit = 1u << 4;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kBit) != 0;
}

// Not in a function: amx.cc says why.
const bool kHasAvxVnni = HasAvxVnni();

}  // namespace

const char* GemmCpuPackedRefuses(const GemmDesc& desc);  // gemm_cpu_packed.cc

const char* GemmCpuPackedAvxVnniRefuses(const GemmDesc& desc) {
  // AVX2, and that the system keeps its registers.
  if (const char* reason = GemmCpuPackedRefuses(desc); reason != nullptr) {
    return reason;
  }
  if (!kHasAvxVnni) return "needs AVX-VNNI";
  return packed::avx_vnni::FindDots(packed::avx_vnni::kFormats, desc.weight) ==
                 nullptr
             ? "weights must be of a format that is multiplied as integers"
             : nullptr;
}

absl::Status RunGemmCpuPackedAvxVnni(const GemmDesc& desc,
                                     const GemmParams& params, Stream& stream) {
  packed::avx_vnni::FindDots(packed::avx_vnni::kFormats, desc.weight)
      ->run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
