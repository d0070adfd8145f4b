// One MXFP4 layer of a checkpoint: codes of e2m1, two in a byte, the first in
// the low nibble [n, k / 2]; of 32 columns an exponent (e8m0) [n, k / 32].
// Presented as mxfp4. Knows no settings. (gpt-oss's, one tensor for all
// experts: expert_source.h.)
#ifndef INLAY_CORE_FORMATS_MXFP4_LAYER_H_
#define INLAY_CORE_FORMATS_MXFP4_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"

namespace inlay {

// Checks the tensors, whose suffixes `codes` and `scales` are. UNIMPLEMENTED
// where k is no multiple of 32.
absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeMxfp4Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const std::string& codes, const std::string& scales);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_MXFP4_LAYER_H_
