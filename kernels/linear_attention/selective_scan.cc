#include "kernels/linear_attention/selective_scan.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunSelectiveScanCpuSimd(
    const SelectiveScanDesc& desc, const SelectiveScanParams& params,
    Stream& stream);  // selective_scan_cpu_simd.cc
absl::Status RunSelectiveScanCpuScalar(
    const SelectiveScanDesc& desc, const SelectiveScanParams& params,
    Stream& stream);  // selective_scan_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunSelectiveScanCuda(const SelectiveScanDesc& desc,
                                  const SelectiveScanParams& params,
                                  Stream& stream);  // selective_scan_cuda.cu
#endif

namespace {

const char* RefusesShape(const SelectiveScanDesc& desc) {
  return desc.state_size < 1 || desc.state_size > kMaxScanState
             ? "states must have 1 to 128 elements"
             : nullptr;
}

const char* CpuRefuses(const SelectiveScanDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? RefusesShape(desc)
                                        : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const SelectiveScanDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? RefusesShape(desc)
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr SelectiveScanRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunSelectiveScanCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunSelectiveScanCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunSelectiveScanCpuScalar},
};

}  // namespace

absl::Span<const SelectiveScanRow> SelectiveScanTable() { return kRows; }

}  // namespace inlay
