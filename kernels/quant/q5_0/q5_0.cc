#include "kernels/quant/q5_0/q5_0.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/nearest_levels.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<Q5_0Block>(src, b);
    const float scale = F16ToF32(block.scale);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.low, codes);
    UnpackBits<1, 1, 32, 4>(block.high, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(codes[i] - 16);
    }
  }
}

// The element of largest magnitude becomes code 0, which reaches one step
// further than 31.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  const auto set = [](float extreme, Q5_0Block& block) -> CodeScale {
    block.scale = F32ToF16(extreme / -16.0f);
    return {InverseScale(F16ToF32(block.scale))};
  };
  const auto pack = [](const int8_t* codes, Q5_0Block& block) {
    PackBits<4, 16, 32>(codes, block.low);
    PackBits<1, 1, 32, 4>(codes, block.high);
  };
  EncodePlainBlocks<Q5_0Block, float>({16.0f, 0.0f, 31.0f}, FindExtremes, set,
                                      pack, src, blocks, dst);
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  constexpr ScaleRule kRule = {
      .first = -16.0f, .step = 0.1f, .least = -16.0f, .most = 15.0f};
  const auto plain = [](const float* values) {
    return Extreme(values, 32) / -16.0f;
  };
  FitScaleBlocks(kRule, plain, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q5_0Block block;
  block.scale = scales.block_scale;
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(levels[i] + 16);
  PackBits<4, 16, 32>(codes, block.low);
  PackBits<1, 1, 32, 4>(codes, block.high);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(Q5_0Block),
                             .sub_elements = 32,
                             .least = -16,
                             .most = 15,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

}  // namespace

extern const BlockCodec kQ5_0Codec;
const BlockCodec kQ5_0Codec = {DType::kQ5_0, Decode, Encode, &kGrid};

}  // namespace inlay
