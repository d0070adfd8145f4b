// Plain floats beside blocks, with vectors: rows of them as float32, and how
// far values are off once rounded. Every target gives the same bits.
#ifndef INLAY_KERNELS_QUANT_ROW_FLOATS_H_
#define INLAY_KERNELS_QUANT_ROW_FLOATS_H_

#include <cstddef>
#include <cstdint>

#include "memory/dtype.h"

namespace inlay {

// LoadFloat (cpu_float.h) of the first `count` elements at `row`, which may lie
// at any address. dtype: f32, f16 or bf16.
void WidenFloats(DType dtype, const std::byte* row, int64_t count,
                 float* values);

// Sums of squares: of values[i] - rounded[i], and of values[i].
struct SquareSums {
  double differences = 0.0;
  double values = 0.0;
};
SquareSums SumSquares(const float* values, const float* rounded, int64_t count);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_ROW_FLOATS_H_
