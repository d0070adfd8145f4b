#include "kernels/quant/q4_0/q4_0.h"

#include <algorithm>
#include <cmath>

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
    const auto block = LoadBlock<Q4_0Block>(src, b);
    const float scale = F16ToF32(block.scale);
    for (int i = 0; i < 16; ++i) {
      dst[i] = scale * static_cast<float>((block.codes[i] & 15) - 8);
      dst[i + 16] = scale * static_cast<float>((block.codes[i] >> 4) - 8);
    }
  }
}

// The element of largest magnitude becomes code 0, which reaches one step
// further than 15.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  const auto set = [](float extreme, Q4_0Block& block) -> CodeScale {
    const float scale = extreme / -8.0f;
    block.scale = F32ToF16(scale);
    return {scale == 0.0f ? 0.0f : 1.0f / scale};
  };
  const auto pack = [](const int8_t* codes, Q4_0Block& block) {
    PackBits<4, 16, 32>(codes, block.codes);
  };
  EncodePlainBlocks<Q4_0Block, float>({8.0f, 0.0f, 15.0f}, FindExtremes, set,
                                      pack, src, blocks, dst);
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  constexpr ScaleRule kRule = {
      .first = -8.0f, .step = 0.1f, .least = -8.0f, .most = 7.0f};
  const auto plain = [](const float* values) {
    return Extreme(values, 32) / -8.0f;
  };
  FitScaleBlocks(kRule, plain, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q4_0Block block;
  block.scale = scales.block_scale;
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(levels[i] + 8);
  PackBits<4, 16, 32>(codes, block.codes);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(Q4_0Block),
                             .sub_elements = 32,
                             .least = -8,
                             .most = 7,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

}  // namespace

extern const BlockCodec kQ4_0Codec;
const BlockCodec kQ4_0Codec = {DType::kQ4_0, Decode, Encode, &kGrid};

}  // namespace inlay
