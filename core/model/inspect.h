// InspectModel: what a model is and what it will cost, as JSON, without loading
// it.
#ifndef INLAY_CORE_MODEL_INSPECT_H_
#define INLAY_CORE_MODEL_INSPECT_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/model/load_model.h"
#include "memory/device/device.h"

namespace inlay {

// One object:
//   architecture, model_type      as config.json spells them
//   supported                     whether LoadModel would take it; if not,
//   reason                        why
//   config                        the scalar members of config.json
//   model                         parameters, layers, hidden_size, vocab_size,
//                                 max_positions (supported models only)
//   kv                            dtype, block_size, layers: [[kv_heads,
//                                 head_dim, layers of this shape], ...],
//                                 groups: [[block_size, window], ...],
//                                 bytes_per_token, bytes_per_block
//   memory                        weights_bytes, kv_bytes_per_1k_tokens,
//                                 experts_bytes (of weights_bytes; the device
//                                 and the host hold experts_device_bytes and
//                                 experts_host_bytes), experts_bytes_per_slot
//                                 times experts_least_slots: the least
//                                 expert_device_bytes other than 0,
//                                 workspace_bytes (for workspace_tokens tokens
//                                 a step with logits of 16 rows)
//   classification                labels (names), scores (what they are of the
//                                 logits by default); models with a head only
//   formats                       name -> {tensors, bytes} of the stored
//   weights tensors                       [{name, dtype, shape, bytes}], sorted
//   by name
// INVALID_ARGUMENT when config.json is not an object. An unsupported or broken
// model is described, not refused.
absl::StatusOr<std::string> InspectModel(const ModelFiles& files,
                                         Device& device,
                                         const ModelLoadOptions& options);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_INSPECT_H_
