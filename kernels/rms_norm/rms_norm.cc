#include "kernels/rms_norm/rms_norm.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunRmsNormCpuSimd(const RmsNormDesc& desc,
                               const RmsNormParams& params,
                               Stream& stream);  // rms_norm_cpu_simd.cc
absl::Status RunRmsNormCpuScalar(const RmsNormDesc& desc,
                                 const RmsNormParams& params,
                                 Stream& stream);  // rms_norm_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunRmsNormCuda(const RmsNormDesc& desc,
                            const RmsNormParams& params,
                            Stream& stream);  // rms_norm_cuda.cu
#endif

namespace {

const char* CpuRefuses(const RmsNormDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 && desc.output == DType::kF32
             ? nullptr
             : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const RmsNormDesc& desc, const DeviceInfo&) {
  if (!IsPlainFloat(desc.activation) || !IsPlainFloat(desc.output)) {
    return "x and y must be f32, f16 or bf16";
  }
  if (desc.activation != DType::kF32 && desc.activation != desc.output) {
    return "y must be of the type of x where that is not f32";
  }
  return nullptr;
}
#endif

constexpr RmsNormRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunRmsNormCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunRmsNormCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunRmsNormCpuScalar},
};

}  // namespace

absl::Span<const RmsNormRow> RmsNormTable() { return kRows; }

}  // namespace inlay
