#include "kernels/quant/i8_g128/i8_g128.h"

#include "kernels/quant/group_grid.h"
#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kI8_G128Codec;
const BlockCodec kI8_G128Codec = {
    DType::kI8_G128, DecodeGroups<I8_G128Block, 128>,
    EncodeGroups<I8_G128Block, 128>, &kI8Grid<128>};

}  // namespace inlay
