#include "kernels/quant/iq2_xxs/iq2_xxs.h"

#include "kernels/quant/block.h"
#include "kernels/quant/iq_block.h"
#include "kernels/quant/iq_grids.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

using Super = IqBlock<32, 8, 8>;

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ2_XXSBlock>(src, b);
    Super super;
    super.scale = block.scale;
    for (int j = 0; j < 8; ++j) {
      uint32_t word;
      std::memcpy(&word, block.subs[j].signs_and_scale, sizeof(word));
      super.scales[j] = static_cast<uint8_t>(word >> 28);
      for (int g = 0; g < 4; ++g) {
        super.indices[4 * j + g] = block.subs[j].indices[g];
        super.signs[4 * j + g] = SignsFrom7(word >> 7 * g);
      }
    }
    super.Decode(kIq2XxsGrid, dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ2_XXSBlock block;
    Super super;
    super.Encode(kIq2XxsGrid, src, /*even_signs=*/true);
    block.scale = super.scale;
    for (int j = 0; j < 8; ++j) {
      uint32_t word = static_cast<uint32_t>(super.scales[j]) << 28;
      for (int g = 0; g < 4; ++g) {
        block.subs[j].indices[g] =
            static_cast<uint8_t>(super.indices[4 * j + g]);
        word |= (super.signs[4 * j + g] & 127u) << 7 * g;
      }
      std::memcpy(block.subs[j].signs_and_scale, &word, sizeof(word));
    }
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ2_XXSCodec;
const BlockCodec kIQ2_XXSCodec = {DType::kIQ2_XXS, Decode, Encode};

}  // namespace inlay
