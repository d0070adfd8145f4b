// attention_tiles_mma.h, compiled for head_dim 80.
#include "kernels/attention/attention_tiles_mma.h"

namespace inlay {

absl::Status LaunchAttentionTilesMmaD80(const AttentionDesc& desc,
                                        const AttentionParams& params,
                                        CudaStream& stream) {
  return tiles_mma::LaunchDim<80>(desc, params, stream);
}

}  // namespace inlay
