// attention_tiles_mma.h, compiled for head_dim 192.
#include "kernels/attention/attention_tiles_mma.h"

namespace inlay {

absl::Status LaunchAttentionTilesMmaD192(const AttentionDesc& desc,
                                         const AttentionParams& params,
                                         CudaStream& stream) {
  return tiles_mma::LaunchDim<192>(desc, params, stream);
}

}  // namespace inlay
