// attention over selected blocks of keys on Hopper, caches of f8_e4m3
// (attention_selected_16bit_sm90.cu, attention_items_f8_sm90.h).
#include "kernels/attention/attention_items_f8_sm90.h"

namespace inlay {

absl::Status LaunchAttentionSelectedF8(const AttentionDesc& desc,
                                       const AttentionParams& params,
                                       CudaStream& stream) {
  return items_sm90::Launch8<items_sm90::FormatF8, true>(desc, params, stream);
}

}  // namespace inlay
