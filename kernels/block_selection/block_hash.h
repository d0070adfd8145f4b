// The random rotation of locality-sensitive hashing: three times signs drawn
// once and for all, then a Hadamard transform (arXiv:1509.02897), over head_dim
// padded with zeros to a power of two. The same numbers on every device, but
// for what rounding does to values next to 0.
#ifndef INLAY_KERNELS_BLOCK_SELECTION_BLOCK_HASH_H_
#define INLAY_KERNELS_BLOCK_SELECTION_BLOCK_HASH_H_

#include <cstdint>

#include "kernels/block_selection/block_summary.h"
#include "kernels/sample/host_device.h"

namespace inlay {

inline constexpr int kHashRounds = 3;

// Coordinates of a rotation: at least as many as there are bits.
INLAY_HOST_DEVICE inline int HashWidth(int head_dim) {
  int width = kHashBits;
  while (width < head_dim) width *= 2;
  return width;
}

// Whether round `round` turns coordinate `i` around. Source: the finaliser of
// SplitMix64.
INLAY_HOST_DEVICE inline bool HashFlips(int round, int i) {
  uint64_t x = (static_cast<uint64_t>(round) << 32 | static_cast<uint32_t>(i)) *
               0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return ((x ^ x >> 31) & 1) != 0;
}

// The words of `x` [head_dim]; `space` is [HashWidth(head_dim)].
inline void HashVector(const float* x, int head_dim, float* space,
                       uint64_t* words) {
  const int width = HashWidth(head_dim);
  for (int i = 0; i < width; ++i) space[i] = i < head_dim ? x[i] : 0.0f;
  for (int round = 0; round < kHashRounds; ++round) {
    for (int i = 0; i < width; ++i) {
      if (HashFlips(round, i)) space[i] = -space[i];
    }
    for (int half = 1; half < width; half *= 2) {
      for (int i = 0; i < width; i += 2 * half) {
        for (int j = i; j < i + half; ++j) {
          const float a = space[j], b = space[j + half];
          space[j] = a + b;
          space[j + half] = a - b;
        }
      }
    }
  }
  for (int word = 0; word < kHashWords; ++word) {
    uint64_t bits = 0;
    for (int i = 0; i < 64; ++i) {
      bits |= static_cast<uint64_t>(space[64 * word + i] > 0.0f) << i;
    }
    words[word] = bits;
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_BLOCK_SELECTION_BLOCK_HASH_H_
