#include "kernels/quant/nf4/nf4.h"

#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kNF4Codec;
const BlockCodec kNF4Codec = {DType::kNF4, DecodeLevels<kNf4Levels>,
                              EncodeLevels<kNf4Levels>};

}  // namespace inlay
