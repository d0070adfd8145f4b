// attention_tiles_mma.h, compiled for head_dim 64.
#include "kernels/attention/attention_tiles_mma.h"

namespace inlay {

absl::Status LaunchAttentionTilesMmaD64(const AttentionDesc& desc,
                                        const AttentionParams& params,
                                        CudaStream& stream) {
  return tiles_mma::LaunchDim<64>(desc, params, stream);
}

}  // namespace inlay
