#include "kernels/quant/q8_0/q8_0.h"

#include <cmath>
#include <cstring>

#include "kernels/quant/block.h"
#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/nearest_levels.h"
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
  const auto set = [](float extreme, Q8_0Block& block) -> CodeScale {
    const float scale = std::abs(extreme) / 127.0f;
    block.scale = F32ToF16(scale);
    return {scale == 0.0f ? 0.0f : 1.0f / scale};
  };
  const auto pack = [](const int8_t* codes, Q8_0Block& block) {
    std::memcpy(block.codes, codes, sizeof(block.codes));
  };
  EncodePlainBlocks<Q8_0Block, float>({0.0f, -127.0f, 127.0f}, FindExtremes,
                                      set, pack, src, blocks, dst);
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  constexpr ScaleRule kRule = {
      .first = -127.0f, .step = 0.2f, .least = -127.0f, .most = 127.0f};
  const auto plain = [](const float* values) {
    return std::abs(Extreme(values, 32)) / 127.0f;
  };
  FitScaleBlocks(kRule, plain, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q8_0Block block;
  block.scale = scales.block_scale;
  std::memcpy(block.codes, levels, sizeof(block.codes));
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(Q8_0Block),
                             .sub_elements = 32,
                             .least = -127,
                             .most = 127,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

}  // namespace

extern const BlockCodec kQ8_0Codec;
const BlockCodec kQ8_0Codec = {DType::kQ8_0, Decode, Encode, &kGrid};

}  // namespace inlay
