// expanded_attention_sm90.h, compiled for keys of 96 and values of 64.
#include "kernels/attention/expanded_attention_sm90.h"

namespace inlay {

absl::Status RunExpandedD96V64(const ExpandedAttentionDesc& desc,
                               const ExpandedAttentionParams& params,
                               CudaStream& stream) {
  return expanded_sm90::Run<kExpandedDims[2]>(desc, params, stream);
}

}  // namespace inlay
