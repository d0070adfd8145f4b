#include "kernels/quant/iq3_xxs/iq3_xxs.h"

#include "kernels/quant/block.h"
#include "kernels/quant/iq_block.h"
#include "kernels/quant/iq_grids.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

using Super = IqBlock<32, 4, 4>;

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ3_XXSBlock>(src, b);
    Super super;
    super.scale = block.scale;
    std::copy_n(block.indices, 64, super.indices);
    for (int j = 0; j < 8; ++j) {
      uint32_t word;
      std::memcpy(&word, block.signs_and_scales[j], sizeof(word));
      super.scales[j] = static_cast<uint8_t>(word >> 28);
      for (int g = 0; g < 4; ++g) {
        super.signs[4 * j + g] = SignsFrom7(word >> 7 * g);
      }
    }
    super.Decode(kIq3XxsGrid, dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ3_XXSBlock block;
    Super super;
    super.Encode(kIq3XxsGrid, src, /*even_signs=*/true);
    block.scale = super.scale;
    for (int i = 0; i < 64; ++i) {
      block.indices[i] = static_cast<uint8_t>(super.indices[i]);
    }
    for (int j = 0; j < 8; ++j) {
      uint32_t word = static_cast<uint32_t>(super.scales[j]) << 28;
      for (int g = 0; g < 4; ++g) {
        word |= (super.signs[4 * j + g] & 127u) << 7 * g;
      }
      std::memcpy(block.signs_and_scales[j], &word, sizeof(word));
    }
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ3_XXSCodec;
const BlockCodec kIQ3_XXSCodec = {DType::kIQ3_XXS, Decode, Encode};

}  // namespace inlay
