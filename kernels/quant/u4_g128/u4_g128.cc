#include "kernels/quant/u4_g128/u4_g128.h"

#include "kernels/quant/group_grid.h"
#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kU4_G128Codec;
const BlockCodec kU4_G128Codec = {
    DType::kU4_G128, DecodeGroups<U4_G128Block, 128>,
    EncodeGroups<U4_G128Block, 128>, &kU4Grid<128>};

}  // namespace inlay
