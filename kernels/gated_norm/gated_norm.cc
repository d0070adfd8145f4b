#include "kernels/gated_norm/gated_norm.h"

namespace inlay {

absl::Status RunGatedNormCpuSimd(const GatedNormDesc& desc,
                                 const GatedNormParams& params,
                                 Stream& stream);  // gated_norm_cpu_simd.cc
absl::Status RunGatedNormCpuScalar(const GatedNormDesc& desc,
                                   const GatedNormParams& params,
                                   Stream& stream);  // gated_norm_cpu.cc

namespace {

const char* CpuRefuses(const GatedNormDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

constexpr GatedNormRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunGatedNormCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunGatedNormCpuScalar},
};

}  // namespace

absl::Span<const GatedNormRow> GatedNormTable() { return kRows; }

}  // namespace inlay
