// The counter-based generator Philox 4x32-10 (Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Stateless: a number
// is a pure function of key and counter, so that any device can compute the
// draw of any token without the draws before it.
#ifndef INLAY_CORE_SAMPLING_PHILOX_H_
#define INLAY_CORE_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace inlay {

inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(a)};
    // The Weyl sequence of the golden ratio and of sqrt(3) - 1.
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: the draw of the request's `index`-th sampled
// token. Counter words 2 and 3 stay 0 here; other uses of the same seed must
// set them to something else.
inline double UniformOf(uint64_t seed, uint64_t index) {
  const std::array<uint32_t, 4> words = Philox4x32(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace inlay

#endif  // INLAY_CORE_SAMPLING_PHILOX_H_
