#include "kernels/quant/bnb_fp4/bnb_fp4.h"

#include "kernels/quant/quant.h"

namespace inlay {

extern const BlockCodec kBNB_FP4Codec;
const BlockCodec kBNB_FP4Codec = {DType::kBNB_FP4, DecodeLevels<kBnbFp4Levels>,
                                  EncodeLevels<kBnbFp4Levels>};

}  // namespace inlay
