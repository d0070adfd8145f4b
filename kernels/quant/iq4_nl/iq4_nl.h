// iq4_nl: 32 elements, one scale; value = scale * level[code].
//
//   byte 0    f16 scale
//   byte 2+i  low nibble: code of element i; high nibble: of element 16 + i
//
// Levels: kernels/quant/iq4.h.
// Source: ggml's GGML_TYPE_IQ4_NL (ggml-common.h, dequantize_row_iq4_nl).
#ifndef INLAY_KERNELS_QUANT_IQ4_NL_IQ4_NL_H_
#define INLAY_KERNELS_QUANT_IQ4_NL_IQ4_NL_H_

#include <cstdint>

namespace inlay {

struct IQ4_NLBlock {
  uint16_t scale;  // f16
  uint8_t codes[16];
};
static_assert(sizeof(IQ4_NLBlock) == 18);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ4_NL_IQ4_NL_H_
