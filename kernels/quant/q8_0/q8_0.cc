#include "kernels/quant/q8_0/q8_0.h"

#include <cmath>

#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<Q8_0Block>(src, b);
    const float scale = F16ToF32(block.scale);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(block.codes[i]);
    }
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 32) {
    const float scale = std::abs(Extreme(src, 32)) / 127.0f;
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    Q8_0Block block;
    block.scale = F32ToF16(scale);
    for (int i = 0; i < 32; ++i) {
      block.codes[i] =
          static_cast<int8_t>(RoundCode(src[i] * inverse, -127, 127));
    }
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kQ8_0Codec;
const BlockCodec kQ8_0Codec = {DType::kQ8_0, Decode, Encode};

}  // namespace inlay
