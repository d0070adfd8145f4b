#include "kernels/rms_norm/rms_norm.h"

namespace inlay {

absl::Status RunRmsNormCpuSimd(const RmsNormDesc& desc,
                               const RmsNormParams& params,
                               Stream& stream);  // rms_norm_cpu_simd.cc
absl::Status RunRmsNormCpuScalar(const RmsNormDesc& desc,
                                 const RmsNormParams& params,
                                 Stream& stream);  // rms_norm_cpu.cc

namespace {

const char* CpuRefuses(const RmsNormDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 && desc.output == DType::kF32
             ? nullptr
             : "activations must be f32";
}

constexpr RmsNormRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunRmsNormCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunRmsNormCpuScalar},
};

}  // namespace

absl::Span<const RmsNormRow> RmsNormTable() { return kRows; }

}  // namespace inlay
