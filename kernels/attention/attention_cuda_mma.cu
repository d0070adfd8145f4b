// attention on GPUs without Hopper's instructions, the host side: which kernels
// a plan needs. No device code.
#include "kernels/attention/attention_mma.h"
#include "memory/device/cuda_stream.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::Status RunAttentionCudaPlain(const AttentionDesc& desc,
                                   const AttentionParams& params,
                                   Stream& stream);  // attention_cuda_plain.cu

absl::Status RunAttentionCudaMma(const AttentionDesc& desc,
                                 const AttentionParams& params,
                                 Stream& stream) {
  const AttentionPlan& plan = *params.plan;
  if (params.kv.block_size % kMmaSlots != 0) {
    if (plan.num_tiles == 0) return RunAttentionCudaPlain(desc, params, stream);
    return absl::InvalidArgumentError(FormattedString(
        "attention: block_size is %d; expected a multiple of %d in a plan that "
        "has tiles",
        params.kv.block_size, kMmaSlots));
  }
  CudaStream& cuda = CudaStream::Of(stream);
  if (plan.run_items) {
    INLAY_RETURN_IF_ERROR(desc.kv == DType::kI8
                              ? LaunchAttentionItemsI8Mma(desc, params, cuda)
                              : LaunchAttentionItemsMma(desc, params, cuda));
  }
  if (plan.num_tiles == 0) return absl::OkStatus();
  switch (desc.head_dim) {
    case 64:
      return LaunchAttentionTilesMmaD64(desc, params, cuda);
    case 80:
      return LaunchAttentionTilesMmaD80(desc, params, cuda);
    case 96:
      return LaunchAttentionTilesMmaD96(desc, params, cuda);
    case 128:
      return LaunchAttentionTilesMmaD128(desc, params, cuda);
    case 192:
      return LaunchAttentionTilesMmaD192(desc, params, cuda);
    default:
      return LaunchAttentionTilesMmaD256(desc, params, cuda);
  }
}

}  // namespace inlay
