// u4_g32: 32 elements, 4-bit codes with float32 scale and minimum: layout in
// kernels/quant/grouped.h. A format of our own.
#ifndef INLAY_KERNELS_QUANT_U4_G32_U4_G32_H_
#define INLAY_KERNELS_QUANT_U4_G32_U4_G32_H_

#include "kernels/quant/grouped.h"

namespace inlay {

using U4_G32Block = U4Group<32>;
static_assert(sizeof(U4_G32Block) == 24);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_U4_G32_U4_G32_H_
