// expert_linear on Hopper with packed quantised weights, 16-bit x and many
// slots: x's rows in the order of experts, then one launch of
// gemm/quantised/product_wide_sm90.cuh for all of them.
#if INLAY_HAS_CUDA

#include "kernels/gemm/quantised/layout.h"
#include "kernels/gemm/quantised/wide_cuda.h"
#include "kernels/moe/expert_linear_cuda.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kHopper = 90;

bool CanBeGrouped(const ExpertLinearDesc& desc) {
  return !WideRoundsTooMuch(QuantFormOf(desc.gemm.weight)) &&
         RowBytes(desc.gemm.activation, static_cast<size_t>(desc.gemm.k)) %
                 16 ==
             0;
}

}  // namespace

bool ExpertLinearGroupedTakes(const ExpertLinearDesc& desc,
                              const ExpertLinearParams& params,
                              const CudaStream& stream) {
  return stream.sm() == kHopper && params.slots != nullptr &&
         CanBeGrouped(desc) && WideTakes(params.x);
}

size_t ExpertLinearGroupedBytes(const ExpertLinearDesc& desc,
                                int64_t max_tokens) {
  return CanBeGrouped(desc) && !ExpertRowsAreFew(desc, max_tokens * desc.top_k)
             ? GatheredExpertBytes(desc, max_tokens)
             : 0;
}

absl::Status RunExpertLinearGrouped(const ExpertLinearDesc& desc,
                                    const ExpertLinearParams& params,
                                    CudaStream& stream) {
  GemmParams product;
  INLAY_ASSIGN_OR_RETURN(product.x, GatherExpertRows(desc, params, stream));
  product.w.data = const_cast<std::byte*>(params.w.base);
  product.bias = params.bias;
  product.y = params.y;
  const WideGroups groups = {desc.num_experts, params.w.stride_bytes,
                             params.offsets, params.slots, params.w.table};
  return RunQuantisedWideGroups(desc.gemm, product,
                                QuantFormOf(desc.gemm.weight), groups, stream);
}

}  // namespace inlay

#endif  // INLAY_HAS_CUDA
