// attention over selected blocks of keys on Hopper, caches of i8
// (attention_selected_16bit_sm90.cu, attention_items_i8_sm90.h).
#include "kernels/attention/attention_items_i8_sm90.h"

namespace inlay {

absl::Status LaunchAttentionSelectedI8(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream) {
  return items_sm90::Launch8<items_sm90::FormatI8, true>(desc, params, stream);
}

}  // namespace inlay
