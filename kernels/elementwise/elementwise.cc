#include "kernels/elementwise/elementwise.h"

namespace inlay {

absl::Status RunElementwiseCpuSimd(const ElementwiseDesc& desc,
                                   const ElementwiseParams& params,
                                   Stream& stream);  // elementwise_cpu_simd.cc
absl::Status RunElementwiseCpuScalar(const ElementwiseDesc& desc,
                                     const ElementwiseParams& params,
                                     Stream& stream);  // elementwise_cpu.cc

namespace {

const char* CpuRefuses(const ElementwiseDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

constexpr ElementwiseRow kRows[] = {
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunElementwiseCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunElementwiseCpuScalar},
};

}  // namespace

absl::Span<const ElementwiseRow> ElementwiseTable() { return kRows; }

}  // namespace inlay
