// config.json of Step 3.5 as published and as transformers 5 writes it, under
// the names that other families have. Knows nothing of networks and files.
// Source: transformers' Step3p7TextConfig; the published config.json of
// Step-3.5-Flash.
#ifndef INLAY_CORE_FORMATS_STEP_CONFIG_H_
#define INLAY_CORE_FORMATS_STEP_CONFIG_H_

#include "absl/status/statusor.h"
#include "core/json/json.h"

namespace inlay {

// `config` with num_key_value_heads, num_local_experts, num_experts_per_tok and
// max_position_embeddings; layer_types, mlp_layer_types, swiglu_limits and
// swiglu_limits_shared with one value for each of num_hidden_layers, without
// those of layers that predict further tokens; num_sliding_attention_heads;
// rope_parameters with full_attention and sliding_attention and nothing of
// ropes beside them. INVALID_ARGUMENT or UNIMPLEMENTED naming the key.
absl::StatusOr<Json> WithUsualStepNames(const Json& config);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_STEP_CONFIG_H_
