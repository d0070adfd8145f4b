#include "kernels/linear_attention/wkv7.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunWkv7CpuSimd(const Wkv7Desc& desc, const Wkv7Params& params,
                            Stream& stream);  // wkv7_cpu_simd.cc
absl::Status RunWkv7CpuScalar(const Wkv7Desc& desc, const Wkv7Params& params,
                              Stream& stream);  // wkv7_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunWkv7Cuda(const Wkv7Desc& desc, const Wkv7Params& params,
                         Stream& stream);  // wkv7_cuda.cu
#endif

namespace {

const char* WkvRefusesShape(const Wkv7Desc& desc) {
  return IsWkvHeadDim(desc.head_dim) ? nullptr
                                     : "heads must have 16, 32, 64 or 128";
}

const char* WkvCpuRefuses(const Wkv7Desc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? WkvRefusesShape(desc)
                                        : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* WkvCudaRefuses(const Wkv7Desc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? WkvRefusesShape(desc)
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr Wkv7Row kWkvRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, WkvCudaRefuses, nullptr, RunWkv7Cuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, WkvCpuRefuses, nullptr, RunWkv7CpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, WkvCpuRefuses, nullptr,
     RunWkv7CpuScalar},
};

}  // namespace

absl::Span<const Wkv7Row> Wkv7Table() { return kWkvRows; }

}  // namespace inlay
