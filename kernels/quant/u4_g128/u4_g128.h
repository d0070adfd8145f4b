// u4_g128: 128 elements, 4-bit codes with float32 scale and minimum: layout in
// kernels/quant/grouped.h. A format of our own.
#ifndef INLAY_KERNELS_QUANT_U4_G128_U4_G128_H_
#define INLAY_KERNELS_QUANT_U4_G128_U4_G128_H_

#include "kernels/quant/grouped.h"

namespace inlay {

using U4_G128Block = U4Group<128>;
static_assert(sizeof(U4_G128Block) == 72);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_U4_G128_U4_G128_H_
