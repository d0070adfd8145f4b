#include "kernels/quant/iq4_nl/iq4_nl.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<IQ4_NLBlock>(src, b);
    const float scale = F16ToF32(block.scale);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.codes, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(kIq4Levels[codes[i]]);
    }
  }
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  constexpr int kSize = 32;
  float fits[kFitGroups];
  for (int64_t first = 0; first < blocks; first += kFitGroups) {
    const int64_t some = std::min(kFitGroups, blocks - first);
    FitScales(kIq4Rule, x + first * kSize,
              weights == nullptr ? nullptr : weights + first * kSize, some,
              kSize, fits);
    SetBlockScales(fits, some, scales + first);
  }
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  IQ4_NLBlock block;
  block.scale = scales.block_scale;
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(Iq4Code(levels[i]));
  }
  PackBits<4, 16, 32>(codes, block.codes);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(IQ4_NLBlock),
                             .sub_elements = 32,
                             .least = -127,
                             .most = 113,
                             .is_iq4 = true,
                             .fit = Fit,
                             .pack = Pack};

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  EncodeOnGrid(kGrid, src, nullptr, blocks, dst);
}

}  // namespace

extern const BlockCodec kIQ4_NLCodec;
const BlockCodec kIQ4_NLCodec = {DType::kIQ4_NL, Decode, Encode, &kGrid};

}  // namespace inlay
