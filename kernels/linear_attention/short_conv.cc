#include "kernels/linear_attention/short_conv.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunShortConvCpuSimd(const ShortConvDesc& desc,
                                 const ShortConvParams& params,
                                 Stream& stream);  // short_conv_cpu_simd.cc
absl::Status RunShortConvCpuScalar(const ShortConvDesc& desc,
                                   const ShortConvParams& params,
                                   Stream& stream);  // short_conv_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunShortConvCuda(const ShortConvDesc& desc,
                              const ShortConvParams& params,
                              Stream& stream);  // short_conv_cuda.cu
#endif

namespace {

const char* RefusesTaps(const ShortConvDesc& desc) {
  return desc.num_taps < 2 || desc.num_taps > kMaxConvTaps
             ? "there must be 2 to 8 taps"
             : nullptr;
}

const char* CpuRefuses(const ShortConvDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? RefusesTaps(desc)
                                        : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const ShortConvDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? RefusesTaps(desc)
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr ShortConvRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunShortConvCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunShortConvCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunShortConvCpuScalar},
};

}  // namespace

absl::Span<const ShortConvRow> ShortConvTable() { return kRows; }

}  // namespace inlay
