#include "kernels/moe/expert_columns.h"

#include "kernels/cpu_float.h"

namespace inlay {

absl::Status RunExpertColumnsCpu(const ExpertColumnsDesc& desc,
                                 const ExpertColumnsParams& params,
                                 Stream& stream);  // expert_columns_cpu.cc

#if INLAY_HAS_CUDA
absl::Status RunExpertColumnsCuda(const ExpertColumnsDesc& desc,
                                  const ExpertColumnsParams& params,
                                  Stream& stream);  // expert_columns_cuda.cu
#endif

namespace {

const char* CpuRefuses(const ExpertColumnsDesc& desc, const DeviceInfo&) {
  return desc.activation == DType::kF32 ? nullptr : "activations must be f32";
}

#if INLAY_HAS_CUDA
const char* CudaRefuses(const ExpertColumnsDesc& desc, const DeviceInfo&) {
  return IsPlainFloat(desc.activation) ? nullptr
                                       : "activations must be f32, f16 or bf16";
}
#endif

constexpr ExpertColumnsRow kRows[] = {
#if INLAY_HAS_CUDA
    {"cuda", DeviceKind::kCuda, 80, CudaRefuses, nullptr, RunExpertColumnsCuda},
#endif
    {"cpu_scalar", DeviceKind::kCpu, 0, CpuRefuses, nullptr,
     RunExpertColumnsCpu},
};

}  // namespace

absl::Span<const ExpertColumnsRow> ExpertColumnsTable() { return kRows; }

}  // namespace inlay
