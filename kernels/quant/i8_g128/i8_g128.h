// i8_g128: 128 elements, int8 codes with float32 scale and minimum: layout in
// kernels/quant/grouped.h. A format of our own.
#ifndef INLAY_KERNELS_QUANT_I8_G128_I8_G128_H_
#define INLAY_KERNELS_QUANT_I8_G128_I8_G128_H_

#include "kernels/quant/grouped.h"

namespace inlay {

using I8_G128Block = I8Group<128>;
static_assert(sizeof(I8_G128Block) == 136);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_I8_G128_I8_G128_H_
