#include "kernels/layer_norm/layer_norm.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunLayerNormCpuSimd(const LayerNormDesc& desc,
                                 const LayerNormParams& params,
                                 Stream& stream);  // layer_norm_cpu_simd.cc
absl::Status RunLayerNormCpuScalar(const LayerNormDesc& desc,
                                   const LayerNormParams& params,
                                   Stream& stream);  // layer_norm_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunLayerNormCuda(const LayerNormDesc& desc,
                              const LayerNormParams& params,
                              Stream& stream);  // layer_norm_cuda.cu
#endif

namespace {

const char* CpuRefuses(const LayerNormDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 && desc.output == DType::kF32
             ? nullptr
             : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const LayerNormDesc& desc, const DeviceInfo&) {
  if (!IsPlainFloat(desc.activation) || !IsPlainFloat(desc.output)) {
    return "x and y must be f32, f16 or bf16";
  }
  if (desc.activation != DType::kF32 && desc.activation != desc.output) {
    return "y must be of the type of x where that is not f32";
  }
  return nullptr;
}
#endif

constexpr LayerNormRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunLayerNormCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunLayerNormCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunLayerNormCpuScalar},
};

}  // namespace

absl::Span<const LayerNormRow> LayerNormTable() { return kRows; }

}  // namespace inlay
