// expert_linear's CUDA rows: which kernel serves what.
#if INLAY_HAS_CUDA

#include "kernels/moe/expert_linear_cuda.h"

#include "kernels/activation/activation.h"
#include "kernels/gemm/gemm_parts.h"
#include "memory/status.h"

namespace inlay {

// activation_cuda.cu
absl::Status RunActivationCuda(const ActivationDesc& desc,
                               const ActivationParams& params, Stream& stream);

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

// One token's products of so few columns are over before a ring is full.
bool IsShort(const ExpertLinearDesc& desc, int64_t slots) {
  constexpr int64_t kShortColumns = 1024;
  return !desc.gemm.batch_invariant && !desc.gated && slots == desc.top_k &&
         desc.gemm.k <= kShortColumns;
}

// Gates and ups, where the product has not.
absl::Status Activate(const ExpertLinearDesc& desc,
                      const ExpertLinearParams& params, Stream& stream) {
  ActivationDesc activation;
  activation.function = desc.function;
  activation.gated = true;
  activation.width = desc.gemm.n / 2;
  activation.activation = desc.gemm.output;
  activation.limit = desc.limit;
  ActivationParams activate;
  activate.x = params.y;
  activate.y = ColumnSlice(params.y, 0, activation.width);
  return RunActivationCuda(activation, activate, stream);
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
  const int64_t slots = params.y.rows();
  const bool streams = ExpertRowsAreSome(desc, slots) &&
                       !IsShort(desc, slots) &&
                       ExpertStreamedTakes(desc, params, cuda);
  if (streams) {
    return RunExpertStreamed(desc, params, cuda);
  }
  INLAY_RETURN_IF_ERROR(ExpertRowsAreFew(desc, slots)
                            ? RunExpertLinearQuantisedFew(desc, params, cuda)
                        : ExpertLinearGroupedTakes(desc, params, cuda)
                            ? RunExpertLinearGrouped(desc, params, cuda)
                            : RunExpertLinearQuantisedMany(desc, params, cuda));
  return desc.gated ? Activate(desc, params, stream) : absl::OkStatus();
}

absl::Status RunExpertLinearCudaRounds(const ExpertLinearDesc& desc,
                                       const ExpertLinearParams& params,
                                       Stream& stream) {
  const bool rounds =
      ExpertCodesRounding(desc, params.y.rows()) != RowRounding::kNone &&
      ExpertCodesTakes(params);
  if (!rounds) return RunExpertLinearCudaQuantised(desc, params, stream);
  INLAY_RETURN_IF_ERROR(RunExpertCodes(desc, params, CudaStream::Of(stream)));
  return desc.gated ? Activate(desc, params, stream) : absl::OkStatus();
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
