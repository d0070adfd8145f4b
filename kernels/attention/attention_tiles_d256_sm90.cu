// attention_tiles_sm90.h, compiled for head_dim 256.
#include "kernels/attention/attention_tiles_sm90.h"

namespace inlay {

absl::Status LaunchAttentionTilesD256(const AttentionDesc& desc,
                                      const AttentionParams& params,
                                      CudaStream& stream) {
  return tiles_sm90::LaunchDim<256>(desc, params, stream);
}

}  // namespace inlay
