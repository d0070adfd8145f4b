// QuantizeCheckpoint: a Hugging Face folder with its linear layers in a layout
// that other engines read: GPTQ's, AWQ's, compressed-tensors', bitsandbytes'.
// Owns what is in the folder.
#ifndef INLAY_CORE_QUANTIZE_CHECKPOINT_H_
#define INLAY_CORE_QUANTIZE_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/quantize/quantize.h"
#include "core/quantize/tensor_types.h"

namespace inlay {

// Linear layers of the decoder's layers get `type`, or that of the last
// override that matches, where their inputs are whole groups (of rows: whole
// blocks of 32) and their outputs whole words of the layout; other tensors stay
// as they are stored, in one model.safetensors. With act_order groups are
// static, so inputs keep their order. Makes `folder` where it is not there;
// config.json comes last. UNIMPLEMENTED for sources that are no folder, or
// quantised already, and layers that lie transposed.
absl::StatusOr<QuantizeReport> QuantizeCheckpoint(
    const ModelFiles& files, const QuantizeOptions& options,
    const CheckpointType& type,
    const std::vector<CheckpointOverride>& overrides,
    const std::string& folder);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_CHECKPOINT_H_
