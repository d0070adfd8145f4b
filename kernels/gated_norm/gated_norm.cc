#include "kernels/gated_norm/gated_norm.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunGatedNormCpuSimd(const GatedNormDesc& desc,
                                 const GatedNormParams& params,
                                 Stream& stream);  // gated_norm_cpu_simd.cc
absl::Status RunGatedNormCpuScalar(const GatedNormDesc& desc,
                                   const GatedNormParams& params,
                                   Stream& stream);  // gated_norm_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunGatedNormCuda(const GatedNormDesc& desc,
                              const GatedNormParams& params,
                              Stream& stream);  // gated_norm_cuda.cu
#endif

namespace {

const char* CpuRefuses(const GatedNormDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const GatedNormDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr GatedNormRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunGatedNormCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunGatedNormCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunGatedNormCpuScalar},
};

}  // namespace

absl::Span<const GatedNormRow> GatedNormTable() { return kRows; }

}  // namespace inlay
