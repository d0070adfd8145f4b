#include "kernels/quant/f8_g32/f8_g32.h"

#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kF8_G32Codec;
const BlockCodec kF8_G32Codec = {DType::kF8_G32, DecodeGroups<F8_G32Block, 32>,
                                 EncodeGroups<F8_G32Block, 32>};

}  // namespace inlay
