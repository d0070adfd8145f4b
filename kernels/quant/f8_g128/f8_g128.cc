#include "kernels/quant/f8_g128/f8_g128.h"

#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kF8_G128Codec;
const BlockCodec kF8_G128Codec = {DType::kF8_G128,
                                  DecodeGroups<F8_G128Block, 128>,
                                  EncodeGroups<F8_G128Block, 128>};

}  // namespace inlay
