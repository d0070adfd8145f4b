#include "kernels/head_scale/head_scale.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunHeadScaleCpu(const HeadScaleDesc& desc,
                             const HeadScaleParams& params,
                             Stream& stream);  // head_scale_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunHeadScaleCuda(const HeadScaleDesc& desc,
                              const HeadScaleParams& params,
                              Stream& stream);  // head_scale_cuda.cu
#endif

namespace {

const char* CpuRefuses(const HeadScaleDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const HeadScaleDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr HeadScaleRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunHeadScaleCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunHeadScaleCpu},
};

}  // namespace

absl::Span<const HeadScaleRow> HeadScaleTable() { return kRows; }

}  // namespace inlay
