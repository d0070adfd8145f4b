#include "kernels/moe/identity.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunMoeIdentityCpu(const MoeIdentityDesc& desc,
                               const MoeIdentityParams& params,
                               Stream& stream);  // identity_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunMoeIdentityCuda(const MoeIdentityDesc& desc,
                                const MoeIdentityParams& params,
                                Stream& stream);  // identity_cuda.cu
#endif

namespace {

const char* CpuRefuses(const MoeIdentityDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const MoeIdentityDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr MoeIdentityRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunMoeIdentityCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr, RunMoeIdentityCpu},
};

}  // namespace

absl::Span<const MoeIdentityRow> MoeIdentityTable() { return kRows; }

}  // namespace inlay
