// nf4: bitsandbytes' 4-bit NormalFloat, 64 elements a scale: the layout is in
// kernels/quant/level_block.h. Levels lie where values of a normal distribution
// are equally many between them, 0 and both ends being levels themselves.
//
// Source: Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs",
// section 3 and appendix E, whose values bitsandbytes stores as "quant_map".
#ifndef INLAY_KERNELS_QUANT_NF4_NF4_H_
#define INLAY_KERNELS_QUANT_NF4_NF4_H_

#include "kernels/quant/level_block.h"

namespace inlay {

using NF4Block = LevelBlock;

inline constexpr BlockLevels kNf4Levels = {
    -1.0f,         -0.696192801f, -0.525073051f,  -0.394917488f,
    -0.284441382f, -0.18477343f,  -0.0910500363f, 0.0f,
    0.0795802996f, 0.160930201f,  0.246112302f,   0.337915242f,
    0.440709829f,  0.562617004f,  0.722956836f,   1.0f};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_NF4_NF4_H_
