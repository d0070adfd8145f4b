// HashVector (block_hash.h) for a warp: the same float32 additions in the same
// order, so the same bits. Element j * 32 + lane of a vector is a lane's
// element j.
#ifndef INLAY_KERNELS_BLOCK_SELECTION_BLOCK_HASH_CUH_
#define INLAY_KERNELS_BLOCK_SELECTION_BLOCK_HASH_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/block_selection/block_hash.h"

namespace inlay {

// Of a key, in 32 bits each: word w of HashVector's is 2 w and, above it, 2 w +
// 1.
inline constexpr int kHashHalves = 2 * kHashWords;

// kWidth: HashWidth(head_dim).
template <int kWidth>
class WarpHash {
 public:
  static constexpr int kElements = kWidth / 32;

  __device__ explicit WarpHash(int lane) : lane_(lane) {
#pragma unroll
    for (int round = 0; round < kHashRounds; ++round) {
      flips_[round] = 0;
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        flips_[round] |= (HashFlips(round, 32 * j + lane) ? 1u : 0u) << j;
      }
    }
  }

  // x becomes anything. All lanes call it and get the words.
  __device__ void Hash(float (&x)[kElements],
                       uint32_t (&words)[kHashHalves]) const {
#pragma unroll
    for (int round = 0; round < kHashRounds; ++round) {
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        x[j] = (flips_[round] >> j & 1) != 0 ? -x[j] : x[j];
      }
#pragma unroll
      for (int half = 1; half < 32; half *= 2) {
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          const float other = __shfl_xor_sync(0xffffffffu, x[j], half);
          x[j] = (lane_ & half) != 0 ? __fsub_rn(other, x[j])
                                     : __fadd_rn(x[j], other);
        }
      }
#pragma unroll
      for (int half = 1; half < kElements; half *= 2) {
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          if ((j & half) != 0) continue;
          const float a = x[j];
          const float b = x[j + half];
          x[j] = __fadd_rn(a, b);
          x[j + half] = __fsub_rn(a, b);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kHashHalves; ++j) {
      words[j] = __ballot_sync(0xffffffffu, x[j] > 0.0f);
    }
  }

 private:
  int lane_;
  uint32_t flips_[kHashRounds];  // bit j: of element j
};

}  // namespace inlay

#endif  // INLAY_KERNELS_BLOCK_SELECTION_BLOCK_HASH_CUH_
