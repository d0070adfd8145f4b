// tq2_0: 256 elements of three values, one scale; value = scale * (code - 1).
//
//   byte 0+i  codes of 2 bits; byte 32 h + i (i < 32) of these 64 has elements
//             128 h + i, + 32, + 64, + 96 from the low bits up
//   byte 64   f16 scale
//
// Source: ggml's GGML_TYPE_TQ2_0 (ggml-common.h, dequantize_row_tq2_0).
#ifndef INLAY_KERNELS_QUANT_TQ2_0_TQ2_0_H_
#define INLAY_KERNELS_QUANT_TQ2_0_TQ2_0_H_

#include <cstdint>

namespace inlay {

struct TQ2_0Block {
  uint8_t codes[64];
  uint16_t scale;  // f16
};
static_assert(sizeof(TQ2_0Block) == 66);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_TQ2_0_TQ2_0_H_
