// The counter-based generator Philox 4x32-10 (Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Stateless: a number
// is a pure function of key and counter, so that any device can compute the
// draw of any token without the draws before it.
#ifndef INLAY_KERNELS_SAMPLE_PHILOX_H_
#define INLAY_KERNELS_SAMPLE_PHILOX_H_

#include <cstdint>

#include "kernels/sample/host_device.h"

namespace inlay {

struct PhiloxWords {
  uint32_t words[4];

  bool operator==(const PhiloxWords&) const = default;
};

INLAY_HOST_DEVICE inline PhiloxWords Philox4x32(PhiloxWords counter,
                                                uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.words[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter.words[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.words[1] ^ key0,
                static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.words[3] ^ key1,
                static_cast<uint32_t>(a)}};
    // The Weyl sequence of the golden ratio and of sqrt(3) - 1.
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// 64 uniform bits: the draw of the request's `index`-th sampled token. Counter
// words 2 and 3 stay 0 here; other uses of the same seed must set them to
// something else.
INLAY_HOST_DEVICE inline uint64_t DrawBits(uint64_t seed, uint64_t index) {
  const PhiloxWords drawn = Philox4x32(
      {{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0,
        0}},
      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return uint64_t{drawn.words[0]} << 32 | drawn.words[1];
}

}  // namespace inlay

#endif  // INLAY_KERNELS_SAMPLE_PHILOX_H_
