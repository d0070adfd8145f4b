// The names that Qwen 1's config.json has and nobody else, and how far its
// networks reach.
// Source: the published configuration_qwen.py and modeling_qwen.py.
#ifndef INLAY_CORE_FORMATS_QWEN_CONFIG_H_
#define INLAY_CORE_FORMATS_QWEN_CONFIG_H_

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// `config` with what stands under those names under the usual ones, too, where
// it is not null; max_position_embeddings are those of which what follows is
// exact: beyond seq_length published code chooses another base by the length of
// the prompt (use_dynamic_ntk) and scales queries (use_logn_attn), and there
// the context ends. intermediate_size stays the one of both halves.
// INVALID_ARGUMENT naming the key that is out of range.
absl::StatusOr<Json> WithUsualQwenNames(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_QWEN_CONFIG_H_
