#include "kernels/linear_attention/short_conv.h"

namespace inlay {

absl::Status RunShortConvCpuSimd(const ShortConvDesc& desc,
                                 const ShortConvParams& params,
                                 Stream& stream);  // short_conv_cpu_simd.cc
absl::Status RunShortConvCpuScalar(const ShortConvDesc& desc,
                                   const ShortConvParams& params,
                                   Stream& stream);  // short_conv_cpu.cc

namespace {

const char* CpuRefuses(const ShortConvDesc& desc, const DeviceInfo&) {
  if (desc.activation != DType::kF32) return "activations must be f32";
  if (desc.num_taps < 2 || desc.num_taps > kMaxConvTaps) {
    return "there must be 2 to 8 taps";
  }
  return nullptr;
}

constexpr ShortConvRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunShortConvCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunShortConvCpuScalar},
};

}  // namespace

absl::Span<const ShortConvRow> ShortConvTable() { return kRows; }

}  // namespace inlay
