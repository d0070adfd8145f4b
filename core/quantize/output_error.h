// OutputError: what rounding a layer's weights did to its outputs over the
// inputs of calibration. Knows no methods.
#ifndef INLAY_CORE_QUANTIZE_OUTPUT_ERROR_H_
#define INLAY_CORE_QUANTIZE_OUTPUT_ERROR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/quantize/input_factor.h"
#include "memory/device/stream.h"

namespace inlay {

// Sums of squares of outputs: sum of e H e^T over rows e.
class OutputEnergy {
 public:
  // With the whole of H, or its diagonal alone: inputs taken for independent.
  explicit OutputEnergy(const InputFactor* factor) : factor_(factor) {}
  explicit OutputEnergy(const std::vector<float>* diagonal)
      : diagonal_(diagonal) {}

  // Of got - want, all [rows, inputs] in the order of inputs; want null: of
  // got.
  absl::StatusOr<double> Of(const float* got, const float* want, int64_t rows,
                            Stream& stream);

 private:
  const InputFactor* factor_ = nullptr;
  const std::vector<float>* diagonal_ = nullptr;
  std::vector<float> errors_;
};

}  // namespace inlay

#endif  // INLAY_CORE_QUANTIZE_OUTPUT_ERROR_H_
