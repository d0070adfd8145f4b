#include "kernels/linear_attention/rg_lru.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunRgLruCpuSimd(const RgLruDesc& desc, const RgLruParams& params,
                             Stream& stream);  // rg_lru_cpu_simd.cc
absl::Status RunRgLruCpuScalar(const RgLruDesc& desc, const RgLruParams& params,
                               Stream& stream);  // rg_lru_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunRgLruCuda(const RgLruDesc& desc, const RgLruParams& params,
                          Stream& stream);  // rg_lru_cuda.cu
#endif

namespace {

const char* RgLruCpuRefuses(const RgLruDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* RgLruCudaRefuses(const RgLruDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr RgLruRow kRgLruRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, RgLruCudaRefuses, nullptr, RunRgLruCuda},
#endif
    {"cpu_simd", DeviceKind::kCpu, 0, RgLruCpuRefuses, nullptr,
     RunRgLruCpuSimd},
    {"cpu_scalar", DeviceKind::kCpu, 0, RgLruCpuRefuses, nullptr,
     RunRgLruCpuScalar},
};

}  // namespace

absl::Span<const RgLruRow> RgLruTable() { return kRgLruRows; }

}  // namespace inlay
