// gemm over weights in f8 on x86-64 with AVX-512, its products of pairs of bf16
// and its permutations of bytes (VBMI). They lie as gemm_cpu_packed.cc has
// them.
#include "kernels/gemm/gemm.h"

#if defined(__x86_64__)
#include "kernels/gemm/packed/includes.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own intrinsics, which leave unused operands undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define INLAY_PACKED_ISA bf16_pairs
#define INLAY_PACKED_VNNI 1
HWY_PUSH_ATTRIBUTES(
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi,avx512bf16")
#include "kernels/gemm/packed/f8_bf16-inl.h"

HWY_POP_ATTRIBUTES

namespace inlay {

const char* GemmCpuPackedRefuses(const GemmDesc& desc);  // gemm_cpu_packed.cc

const char* GemmCpuPackedBf16Refuses(const GemmDesc& desc) {
  if (desc.weight != DType::kF8_G32 && desc.weight != DType::kF8_G128) {
    return "weights must be f8_g32 or f8_g128";
  }
  if (const char* reason = GemmCpuPackedRefuses(desc); reason != nullptr) {
    return reason;
  }
  return __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512vnni") &&
                 __builtin_cpu_supports("avx512vbmi") &&
                 __builtin_cpu_supports("avx512bf16")
             ? nullptr
             : "needs AVX-512 with products of bf16 and VBMI";
}

size_t GemmCpuPackedBf16WorkspaceBytes(const GemmDesc& desc, int64_t max_rows) {
  return static_cast<size_t>(max_rows * desc.k) * sizeof(uint16_t);
}

absl::Status RunGemmCpuPackedBf16(const GemmDesc& desc,
                                  const GemmParams& params, Stream& stream) {
  namespace pairs = packed::bf16_pairs;
  const auto run = desc.weight == DType::kF8_G32
                       ? pairs::RunF8Pairs<pairs::F8<DType::kF8_G32, 32>>
                       : pairs::RunF8Pairs<pairs::F8<DType::kF8_G128, 128>>;
  run(desc, params, *stream.thread_pool());
  return absl::OkStatus();
}

}  // namespace inlay
#endif  // __x86_64__
