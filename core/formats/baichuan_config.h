// Which of Baichuan's networks a config.json is of, which no published key
// says. Knows nothing of networks and files. Source: vLLM's baichuan.py, for
// how engines tell them apart.
#ifndef INLAY_CORE_FORMATS_BAICHUAN_CONFIG_H_
#define INLAY_CORE_FORMATS_BAICHUAN_CONFIG_H_

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// Whether positions are ALiBi's (13B) or rope's (7B): position_embedding,
// "rope" or "alibi" (no published key); where it is absent the class, as
// "BaiChuanForCausalLM" is 7B of the first alone, or the width, which is 4096
// in Baichuan 2's 7B. UNIMPLEMENTED for another name.
absl::StatusOr<bool> BaichuanHasAlibi(const Json& config);

// Whether the head's rows are normalised (Baichuan 2): norm_head (no published
// key); where it is absent, whether there are 125,696 tokens.
absl::StatusOr<bool> BaichuanHasNormHead(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_BAICHUAN_CONFIG_H_
