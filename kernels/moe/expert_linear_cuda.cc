// expert_linear's CUDA rows: which kernel serves what.
#if INLAY_HAS_CUDA

#include "kernels/moe/expert_linear_cuda.h"

namespace inlay {
namespace {

bool MmaTakes(const ExpertLinearDesc& desc, const ExpertLinearParams& params) {
  const GemmDesc& gemm = desc.gemm;
  const auto at16 = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  return gemm.weight == gemm.activation && gemm.weight != DType::kF32 &&
         gemm.k % 32 == 0 && at16(params.x.data) &&
         params.x.row_stride_bytes % 16 == 0 && at16(params.w.base) &&
         params.w.stride_bytes % 16 == 0;
}

}  // namespace

absl::Status RunExpertLinearCuda(const ExpertLinearDesc& desc,
                                 const ExpertLinearParams& params,
                                 Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  if (ExpertLinearWideTakes(desc, params, cuda)) {
    return RunExpertLinearWide(desc, params, cuda);
  }
  return MmaTakes(desc, params) ? RunExpertLinearMma(desc, params, cuda)
                                : RunExpertLinearPlain(desc, params, cuda);
}

absl::Status RunExpertLinearCudaQuantised(const ExpertLinearDesc& desc,
                                          const ExpertLinearParams& params,
                                          Stream& stream) {
  CudaStream& cuda = CudaStream::Of(stream);
  if (ExpertRowsAreFew(desc, params.y.rows())) {
    return RunExpertLinearQuantisedFew(desc, params, cuda);
  }
  return ExpertLinearGroupedTakes(desc, params, cuda)
             ? RunExpertLinearGrouped(desc, params, cuda)
             : RunExpertLinearQuantisedMany(desc, params, cuda);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
