#include "kernels/layer_norm/layer_norm.h"

namespace inlay {

absl::Status RunLayerNormCpuSimd(const LayerNormDesc& desc,
                                 const LayerNormParams& params,
                                 Stream& stream);  // layer_norm_cpu_simd.cc
absl::Status RunLayerNormCpuScalar(const LayerNormDesc& desc,
                                   const LayerNormParams& params,
                                   Stream& stream);  // layer_norm_cpu.cc

namespace {

const char* CpuRefuses(const LayerNormDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 && desc.output == DType::kF32
             ? nullptr
             : "activations must be f32";
}

constexpr LayerNormRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunLayerNormCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunLayerNormCpuScalar},
};

}  // namespace

absl::Span<const LayerNormRow> LayerNormTable() { return kRows; }

}  // namespace inlay
