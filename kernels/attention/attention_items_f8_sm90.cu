// attention's items over caches of f8_e4m3 (attention_items_f8_sm90.h).
#include "kernels/attention/attention_items_f8_sm90.h"

namespace inlay {

absl::Status LaunchAttentionItemsF8(const AttentionDesc& desc,
                                    const AttentionParams& params,
                                    CudaStream& stream) {
  return items_sm90::Launch8<items_sm90::FormatF8>(desc, params, stream);
}

}  // namespace inlay
