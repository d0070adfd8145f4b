// tq1_0: 256 elements of three values, one scale; value = scale * (digit - 1).
//
//   byte 0+i   digits 0..4: elements i, 32 + i, .., 128 + i       (i < 32)
//   byte 32+i  digits 0..4: elements 160 + i, 176 + i, .., 224 + i (i < 16)
//   byte 48+i  digits 0..3: elements 240 + i, 244 + i, .., 252 + i (i < 4)
//   byte 52    f16 scale
//
// A byte is a fraction of 256 whose digits to base 3, the first being the most
// significant, are the elements': digit n = floor(3 * (byte * 3^n mod 256) /
// 256). The encoder rounds up, so that all five come out whole.
//
// Source: ggml's GGML_TYPE_TQ1_0 (ggml-common.h, dequantize_row_tq1_0).
#ifndef INLAY_KERNELS_QUANT_TQ1_0_TQ1_0_H_
#define INLAY_KERNELS_QUANT_TQ1_0_TQ1_0_H_

#include <cstdint>

namespace inlay {

struct TQ1_0Block {
  uint8_t digits[52];
  uint16_t scale;  // f16
};
static_assert(sizeof(TQ1_0Block) == 54);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_TQ1_0_TQ1_0_H_
