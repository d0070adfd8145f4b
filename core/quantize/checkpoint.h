// QuantizeCheckpoint: a Hugging Face folder with its linear layers in GPTQ's
// layout, which other engines read. Owns what is in the folder.
#ifndef INLAY_CORE_QUANTIZE_CHECKPOINT_H_
#define INLAY_CORE_QUANTIZE_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/quantize/quantize.h"
#include "core/quantize/tensor_types.h"

namespace inlay {

// Linear layers of the decoder's layers get `type`, where their inputs are
// whole groups and their outputs whole words, and no override gives them a
// plain type; other tensors stay as they are stored, in one model.safetensors.
// With act_order groups are static, so inputs keep their order. Makes `folder`
// where it is not there; config.json comes last. UNIMPLEMENTED for sources that
// are no folder, or quantised already, and layers that lie transposed.
absl::StatusOr<QuantizeReport> QuantizeCheckpoint(
    const ModelFiles& files, const QuantizeOptions& options,
    const QuantizedType& type, const std::vector<TensorOverride>& overrides,
    const std::string& folder);

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_CHECKPOINT_H_
