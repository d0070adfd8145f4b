// attention_tiles_sm90.h, compiled for head_dim 128.
#include "kernels/attention/attention_tiles_sm90.h"

namespace inlay {

absl::Status LaunchAttentionTilesD128(const AttentionDesc& desc,
                                      const AttentionParams& params,
                                      CudaStream& stream) {
  return tiles_sm90::LaunchDim<128>(desc, params, stream);
}

}  // namespace inlay
