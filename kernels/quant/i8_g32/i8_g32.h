// i8_g32: 32 elements, int8 codes with float32 scale and minimum: layout in
// kernels/quant/grouped.h. A format of our own.
#ifndef INLAY_KERNELS_QUANT_I8_G32_I8_G32_H_
#define INLAY_KERNELS_QUANT_I8_G32_I8_G32_H_

#include "kernels/quant/grouped.h"

namespace inlay {

using I8_G32Block = I8Group<32>;
static_assert(sizeof(I8_G32Block) == 40);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_I8_G32_I8_G32_H_
