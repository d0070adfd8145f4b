#include "kernels/quant/i8_g32/i8_g32.h"

#include "kernels/quant/group_grid.h"
#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kI8_G32Codec;
const BlockCodec kI8_G32Codec = {DType::kI8_G32, DecodeGroups<I8_G32Block, 32>,
                                 EncodeGroups<I8_G32Block, 32>, &kI8Grid<32>};

}  // namespace inlay
