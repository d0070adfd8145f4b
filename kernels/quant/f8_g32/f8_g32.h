// f8_g32: 32 elements, e4m3 codes with a float32 scale: layout in
// kernels/quant/grouped.h. A format of our own.
#ifndef INLAY_KERNELS_QUANT_F8_G32_F8_G32_H_
#define INLAY_KERNELS_QUANT_F8_G32_F8_G32_H_

#include "kernels/quant/grouped.h"

namespace inlay {

using F8_G32Block = F8Group<32>;
static_assert(sizeof(F8_G32Block) == 36);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_F8_G32_F8_G32_H_
