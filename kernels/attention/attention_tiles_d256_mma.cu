// attention_tiles_mma.h, compiled for head_dim 256.
#include "kernels/attention/attention_tiles_mma.h"

namespace inlay {

absl::Status LaunchAttentionTilesMmaD256(const AttentionDesc& desc,
                                         const AttentionParams& params,
                                         CudaStream& stream) {
  return tiles_mma::LaunchDim<256>(desc, params, stream);
}

}  // namespace inlay
