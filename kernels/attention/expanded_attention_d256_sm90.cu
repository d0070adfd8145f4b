// expanded_attention_sm90.h, compiled for keys of 256 and values of 256.
#include "kernels/attention/expanded_attention_sm90.h"

namespace inlay {

absl::Status RunExpandedD256V256(const ExpandedAttentionDesc& desc,
                                 const ExpandedAttentionParams& params,
                                 CudaStream& stream) {
  return expanded_sm90::Run<kExpandedDims[1]>(desc, params, stream);
}

}  // namespace inlay
