#include "kernels/elementwise/elementwise.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunElementwiseCpuSimd(const ElementwiseDesc& desc,
                                   const ElementwiseParams& params,
                                   Stream& stream);  // elementwise_cpu_simd.cc
absl::Status RunElementwiseCpuScalar(const ElementwiseDesc& desc,
                                     const ElementwiseParams& params,
                                     Stream& stream);  // elementwise_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunElementwiseCuda(const ElementwiseDesc& desc,
                                const ElementwiseParams& params,
                                Stream& stream);  // elementwise_cuda.cu
#endif

namespace {

const char* CpuRefuses(const ElementwiseDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const ElementwiseDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr ElementwiseRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunElementwiseCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunElementwiseCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunElementwiseCpuScalar},
};

}  // namespace

absl::Span<const ElementwiseRow> ElementwiseTable() { return kRows; }

}  // namespace inlay
