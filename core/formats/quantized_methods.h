// The methods of quantised Hugging Face checkpoints, one file each: from the
// settings and the stored tensors to the layers found. Owns nothing.
#ifndef INLAY_CORE_FORMATS_QUANTIZED_METHODS_H_
#define INLAY_CORE_FORMATS_QUANTIZED_METHODS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

struct QuantizedLayers {
  std::vector<std::unique_ptr<const QuantizedLayer>> layers;
  std::vector<std::string> consumed;  // stored tensors that those stand for
};

// Each checks all of `config` that bears on the weights, then every tensor of
// every quantised layer: a layer is quantised where its tensors are there.
// INVALID_ARGUMENT and NOT_FOUND for what no such file may hold, UNIMPLEMENTED
// for what exists but is not supported. The layers keep `stored`. `place`:
// where `config` stands (quantized_settings.h); all but ModelOpt's stand in
// config.json.
using FindQuantizedLayers = absl::StatusOr<QuantizedLayers>(
    const Json& config, const std::shared_ptr<const WeightSource>& stored,
    std::string_view place);

FindQuantizedLayers FindGptqLayers;
FindQuantizedLayers FindAutoRoundLayers;
FindQuantizedLayers FindAwqLayers;
FindQuantizedLayers FindCompressedTensorsLayers;
FindQuantizedLayers FindFp8Layers;
FindQuantizedLayers FindFbgemmFp8Layers;
FindQuantizedLayers FindBitnetLayers;
FindQuantizedLayers FindBitsAndBytesLayers;
FindQuantizedLayers FindModelOptLayers;
FindQuantizedLayers FindQuarkLayers;
FindQuantizedLayers FindTorchAoLayers;

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_QUANTIZED_METHODS_H_
