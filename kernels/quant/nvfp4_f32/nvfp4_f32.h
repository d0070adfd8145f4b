// nvfp4_f32: nvfp4 that belongs to a tensor with a factor, which each block
// repeats: 64 elements in 4 sub-blocks of 16 with a scale each.
// value = (factor * (scale[j] / 2)) * (2 * e2m1) in sub-block j, in float32.
//
//   byte 0    f32 factor
//   byte 4+j  ue4m3 scale[j]
//   byte 8+i  codes; byte 8 j + i (i < 8) of these 32 has elements 16 j + i
//             (low nibble) and 16 j + 8 + i (high nibble)
//
// So a matrix needs nothing beside its blocks, whatever cuts, stacks or packs
// it. Kernels expect one factor a row, and are right for several.
//
// Source: ours; NVIDIA's NVFP4 is e2m1 * e4m3 * float32 (nvfp4.h).
#ifndef INLAY_KERNELS_QUANT_NVFP4_F32_NVFP4_F32_H_
#define INLAY_KERNELS_QUANT_NVFP4_F32_NVFP4_F32_H_

#include "kernels/quant/nvfp4/nvfp4.h"

namespace inlay {

struct NVFP4F32Block {
  float factor;
  NVFP4Block of;
};
static_assert(sizeof(NVFP4F32Block) == 40);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_NVFP4_F32_NVFP4_F32_H_
