// attention_tiles_mma.h, compiled for head_dim 128.
#include "kernels/attention/attention_tiles_mma.h"

namespace inlay {

absl::Status LaunchAttentionTilesMmaD128(const AttentionDesc& desc,
                                         const AttentionParams& params,
                                         CudaStream& stream) {
  return tiles_mma::LaunchDim<128>(desc, params, stream);
}

}  // namespace inlay
