// nvfp4: 64 elements in 4 sub-blocks of 16 with a scale each.
// value = scale[j] * e2m1 in sub-block j.
//
//   byte 0+j  ue4m3 scale[j]
//   byte 4+i  codes; byte 8 j + i (i < 8) of these 32 has elements 16 j + i
//             (low nibble) and 16 j + 8 + i (high nibble)
//
// Scales reach from 2^-9 to 448: what is not of that size has a further scale
// of the whole tensor, which is not part of the blocks.
//
// Source: ggml's GGML_TYPE_NVFP4 (ggml-common.h, dequantize_row_nvfp4); NVIDIA,
// "Introducing NVFP4". kernels/quant/fp4.h has the numbers.
#ifndef INLAY_KERNELS_QUANT_NVFP4_NVFP4_H_
#define INLAY_KERNELS_QUANT_NVFP4_NVFP4_H_

#include <cstdint>

namespace inlay {

struct NVFP4Block {
  uint8_t scales[4];  // ue4m3
  uint8_t codes[32];
};
static_assert(sizeof(NVFP4Block) == 36);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_NVFP4_NVFP4_H_
