// f8_g128: 128 elements, e4m3 codes with a float32 scale: layout in
// kernels/quant/grouped.h. A format of our own.
#ifndef INLAY_KERNELS_QUANT_F8_G128_F8_G128_H_
#define INLAY_KERNELS_QUANT_F8_G128_F8_G128_H_

#include "kernels/quant/grouped.h"

namespace inlay {

using F8_G128Block = F8Group<128>;
static_assert(sizeof(F8_G128Block) == 132);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_F8_G128_F8_G128_H_
