#include "kernels/activation/xielu.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunXieluCpuSimd(const XieluDesc& desc, const XieluParams& params,
                             Stream& stream);  // xielu_cpu_simd.cc
absl::Status RunXieluCpuScalar(const XieluDesc& desc, const XieluParams& params,
                               Stream& stream);  // xielu_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunXieluCuda(const XieluDesc& desc, const XieluParams& params,
                          Stream& stream);  // xielu_cuda.cu
#endif

namespace {

const char* CpuRefuses(const XieluDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const XieluDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr XieluRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunXieluCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunXieluCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunXieluCpuScalar},
};

}  // namespace

absl::Span<const XieluRow> XieluTable() { return kRows; }

}  // namespace inlay
