// One layer of a checkpoint in e4m3: codes "L.weight" [n, k], scales on a grid
// over them, floats or exponents. Presented as f8_g32 or f8_g128. Knows no
// settings.
#ifndef INLAY_CORE_FORMATS_FP8_LAYER_H_
#define INLAY_CORE_FORMATS_FP8_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/quantized_settings.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct Fp8Scheme {
  std::string scale;  // the suffix of the scales' tensor
  ScaleGrid grid;     // 0: all rows, all columns
  // Scales may come as [rows, 1, columns, 1].
  bool scale_has_gaps = false;
  bool may_be_exponents = false;  // the scales, a byte each
  InputCodes input_codes = InputCodes::kNone;
};

// Checks the tensors, "L.input_scale" among them. Reads none.
absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeFp8Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const Fp8Scheme& scheme);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_FP8_LAYER_H_
