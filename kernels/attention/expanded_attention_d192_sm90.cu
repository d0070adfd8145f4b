// expanded_attention_sm90.h, compiled for keys of 192 and values of 128; which
// of these files serves a shape.
#include "kernels/attention/expanded_attention_sm90.h"

namespace inlay {

absl::Status RunExpandedD192V128(const ExpandedAttentionDesc& desc,
                                 const ExpandedAttentionParams& params,
                                 CudaStream& stream) {
  return expanded_sm90::Run<kExpandedDims[0]>(desc, params, stream);
}

absl::Status RunExpandedAttentionCudaSm90(const ExpandedAttentionDesc& desc,
                                          const ExpandedAttentionParams& params,
                                          Stream& stream) {
  static_assert(std::size(kExpandedDims) == 3);
  CudaStream& cuda = CudaStream::Of(stream);
  if (desc.dims() == kExpandedDims[1]) {
    return RunExpandedD256V256(desc, params, cuda);
  }
  if (desc.dims() == kExpandedDims[2]) {
    return RunExpandedD96V64(desc, params, cuda);
  }
  return RunExpandedD192V128(desc, params, cuda);
}

}  // namespace inlay
