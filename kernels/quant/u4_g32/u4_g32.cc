#include "kernels/quant/u4_g32/u4_g32.h"

#include "kernels/quant/group_grid.h"
#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kU4_G32Codec;
const BlockCodec kU4_G32Codec = {DType::kU4_G32, DecodeGroups<U4_G32Block, 32>,
                                 EncodeGroups<U4_G32Block, 32>, &kU4Grid<32>};

}  // namespace inlay
