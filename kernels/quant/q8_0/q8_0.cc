#include "kernels/quant/q8_0/q8_0.h"

#include <cmath>
#include <cstring>

#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"
#include "kernels/quant/grid.h"
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

void Fit(const float* x, const float* weights, GridScales* scales) {
  const float scale =
      weights == nullptr
          ? std::abs(Extreme(x, 32)) / 127.0f
          : FitScale(x, weights, 32, -127.0f, 0.2f, [](float value) {
              return RoundLevel(value, -127.0f, 127.0f);
            });
  scales->block_scale = F32ToF16(scale);
  scales->scale[0] = F16ToF32(scales->block_scale);
  scales->min[0] = 0.0f;
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
