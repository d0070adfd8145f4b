// attention_tiles_mma.h, compiled for head_dim 96.
#include "kernels/attention/attention_tiles_mma.h"

namespace inlay {

absl::Status LaunchAttentionTilesMmaD96(const AttentionDesc& desc,
                                        const AttentionParams& params,
                                        CudaStream& stream) {
  return tiles_mma::LaunchDim<96>(desc, params, stream);
}

}  // namespace inlay
