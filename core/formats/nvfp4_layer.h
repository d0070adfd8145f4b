// One NVFP4 layer of a checkpoint: codes of e2m1, two in a byte, the first in
// the low nibble [n, k / 2]; a scale of 16 columns in e4m3 [n, k / 16]; a
// factor of the whole in float32. Presented as nvfp4_f32. Knows no settings.
#ifndef INLAY_CORE_FORMATS_NVFP4_LAYER_H_
#define INLAY_CORE_FORMATS_NVFP4_LAYER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/formats/quantized_layer.h"
#include "core/formats/weight_source.h"

namespace inlay {

// The suffixes of a layer's tensors.
struct Nvfp4Names {
  std::string codes;
  std::string scales;
  std::string factor;
  bool factor_divides = false;  // it is kept inverted
};

// Checks the tensors and reads the factor, which must be finite, and more than
// 0 where it divides. UNIMPLEMENTED where k is no multiple of 64.
absl::StatusOr<std::unique_ptr<const QuantizedLayer>> MakeNvfp4Layer(
    const std::shared_ptr<const WeightSource>& stored, const std::string& layer,
    const Nvfp4Names& names);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_NVFP4_LAYER_H_
