// Random blocks of quantised weights for tests.
#ifndef INLAY_TESTS_SUPPORT_RANDOM_BLOCKS_H_
#define INLAY_TESTS_SUPPORT_RANDOM_BLOCKS_H_

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/quant/quant.h"

namespace inlay::testing {

// Encoded from a draw from N(0.1, deviation^2). A few, each taken several
// times: formats of codewords take long to encode.
inline std::vector<std::byte> RandomBlocks(const BlockCodec& codec,
                                           int64_t blocks, std::mt19937& rng,
                                           float deviation = 1.0f,
                                           int64_t drawn = 24) {
  const FormatInfo& format = GetFormatInfo(codec.dtype);
  const auto bytes = static_cast<size_t>(format.block_bytes);
  std::vector<std::byte> out(static_cast<size_t>(blocks) * bytes);
  std::normal_distribution<float> normal(0.1f, deviation);
  std::vector<float> values(static_cast<size_t>(format.block_elements));
  for (int64_t b = 0; b < blocks; ++b) {
    std::byte* block = out.data() + static_cast<size_t>(b) * bytes;
    if (b >= drawn) {
      std::memcpy(block,
                  out.data() + rng() % static_cast<size_t>(drawn) * bytes,
                  bytes);
      continue;
    }
    for (float& value : values) value = normal(rng);
    codec.encode(values.data(), 1, block);
  }
  return out;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_RANDOM_BLOCKS_H_
