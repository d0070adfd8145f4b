// Quantised weights as gemm/quantised/product_wide_sm90.cuh multiplies them.
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

// A row of weights as the kernel multiplies them.
inline void RoundedRow(const QuantMatrix& matrix, const std::byte* packed,
                       int64_t row, DType type, double* values) {
  const QuantForm& form = matrix.form;
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
    const double min =
        form.has_min
            ? RoundTo(type, smaller * double{quant_blocks::Half(at + 4)})
            : 0.0;
    values[c] = factor * RoundTo(type, level * scale + min);
  }
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_ROUNDED_WEIGHTS_H_
