// mxfp4: 32 elements, one scale; value = scale * e2m1.
//
//   byte 0    e8m0 scale
//   byte 1+i  low nibble: e2m1 of element i; high nibble: of element 16 + i
//
// Source: ggml's GGML_TYPE_MXFP4 (ggml-common.h, dequantize_row_mxfp4); OCP
// Microscaling Formats (MX) specification 1.0, section 5.1. kernels/quant/fp4.h
// has the numbers.
#ifndef INLAY_KERNELS_QUANT_MXFP4_MXFP4_H_
#define INLAY_KERNELS_QUANT_MXFP4_MXFP4_H_

#include <cstdint>

namespace inlay {

struct MXFP4Block {
  uint8_t scale;  // e8m0
  uint8_t codes[16];
};
static_assert(sizeof(MXFP4Block) == 17);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_MXFP4_MXFP4_H_
