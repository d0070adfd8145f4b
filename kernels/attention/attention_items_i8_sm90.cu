// attention's items over caches of i8 (attention_items_i8_sm90.h).
#include "kernels/attention/attention_items_i8_sm90.h"

namespace inlay {

absl::Status LaunchAttentionItemsI8(const AttentionDesc& desc,
                                    const AttentionParams& params,
                                    CudaStream& stream) {
  return items_sm90::Launch8<items_sm90::FormatI8>(desc, params, stream);
}

}  // namespace inlay
