// Quantised weights as gemm/quantised/product_wide_sm90.cuh multiplies them,
// and as kernels do that have one order of sums (rounded_codes.cuh there).
#ifndef INLAY_TESTS_SUPPORT_ROUNDED_WEIGHTS_H_
#define INLAY_TESTS_SUPPORT_ROUNDED_WEIGHTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm/quantised/pack.h"

namespace inlay::testing {

// The nearest number of a 16-bit type, ties to even, rounded once.
inline double RoundTo(DType dtype, double value) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  int exponent;
  std::frexp(value, &exponent);
  const int step =
      dtype == DType::kF16 ? std::max(exponent - 11, -24) : exponent - 8;
  return std::ldexp(std::nearbyint(std::ldexp(value, -step)), step);
}

// What codes of bf16 kernels with one order are less by as they lie: minima
// take it up.
inline double MiddleOf(const QuantForm& form) {
  return form.codes == QuantCodes::kLinear4   ? 8.0
         : form.codes == QuantCodes::kLinear6 ? 32.0
                                              : 0.0;
}

// A row of weights as the kernel multiplies them.
inline void RoundedRow(const QuantMatrix& matrix, const std::byte* packed,
                       int64_t row, DType type, double* values,
                       bool one_order = false) {
  const QuantForm& form = matrix.form;
  const double middle =
      one_order && form.has_min && type == DType::kBF16 ? MiddleOf(form) : 0.0;
  const auto* tile = reinterpret_cast<const uint8_t*>(packed) +
                     row / kQuantRows * QuantTileBytes(form, matrix.k);
  const auto r = static_cast<int>(row % kQuantRows);
  // Scales are 2^-8 smaller in f16.
  const double smaller = type == DType::kF16 ? 0x1p-8 : 1.0;
  const double factor = quant_blocks::Float(tile + r * 4) / smaller;
  for (int64_t c = 0; c < matrix.k; ++c) {
    const uint8_t* unit =
        tile + kQuantHeadBytes + c / kQuantColumns * QuantUnitBytes(form);
    const auto column = static_cast<int>(c % kQuantColumns);
    const uint8_t* at = unit + QuantScaleAt(form, r, column / form.group);
    const double level =
        QuantLevel(form, QuantCode(form.codes, unit, r, column));
    const double scale =
        RoundTo(type, smaller * double{quant_blocks::Half(at)});
    // The kernel's is a float first.
    const auto least = static_cast<float>(
        form.has_min
            ? smaller * double{quant_blocks::Half(at + 4)} - middle * scale
            : 0.0);
    const double min = RoundTo(type, least);
    values[c] = factor * RoundTo(type, (level + middle) * scale + min);
  }
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ROUNDED_WEIGHTS_H_
