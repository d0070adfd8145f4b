// One layer of a checkpoint in TorchAO's Int4Tensor: codes [n, k / 2], bytes of
// two signed ones; scales and zeros [k / group, n], floats. Presented as u4_g32
// or u4_g128. Knows no settings.
#ifndef INLAY_CORE_FORMATS_TORCHAO_LAYER_H_
#define INLAY_CORE_FORMATS_TORCHAO_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct TorchAoNames {
  std::string codes;
  std::string scales;
  std::string zeros;
};

// Checks the tensors. Reads none.
absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeTorchAoInt4Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const TorchAoNames& names);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_TORCHAO_LAYER_H_
