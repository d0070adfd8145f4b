// AutoRound's layers of floats: MXFP4, MXFP8, NVFP4 and FP8. Knows no settings;
// auto_round.cc does.
#ifndef INLAY_CORE_FORMATS_AUTO_ROUND_FLOATS_H_
#define INLAY_CORE_FORMATS_AUTO_ROUND_FLOATS_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "core/formats/quantized_methods.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/weight_source.h"

namespace inlay {

// Every layer with "weight_packed", or with a "weight" of e4m3 and exponents.
absl::Status AddAutoRoundMxLayers(
    const std::shared_ptr<const WeightSource>& stored, QuantizedLayers& found);

// Every layer with a "weight" of e4m3; `block`: of scales, else they are of
// tensors or channels.
absl::Status AddAutoRoundFp8Layers(
    const std::shared_ptr<const WeightSource>& stored,
    const std::optional<ScaleGrid>& block, InputCodes input_codes,
    QuantizedLayers& found);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_AUTO_ROUND_FLOATS_H_
